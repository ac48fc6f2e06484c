// SPDX-License-Identifier: GPL-2.0-only

//! Tests of nodes, and of their registry.

#[kernel::macros::kunit_tests(amdkfd_gpu)]
mod tests {
    use super::super::*;
    use crate::{
        gfx::MqdDomain,
        kgd::{
            fake::Fake,
            is_known_to_c, //
        },
    };
    use kernel::{
        fmt,
        str::CString, //
    };
    use pin_init::Zeroable;

    struct Slots<'a>(&'a NodeQueues);

    impl fmt::Display for Slots<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.show_slots(f)
        }
    }

    #[test]
    fn slots_are_read_without_keeping_a_reset_from_beginning() {
        let fake = Fake::new().unwrap();
        let gpu = Gpu::new(fake.clone(), Gate::new().unwrap()).unwrap();
        let sink = Arc::new(NoSink, GFP_KERNEL).unwrap();
        let node = Node::new(gpu, 0, GpuId::new(1).unwrap(), sink).unwrap();
        let shown = || {
            let text = CString::try_from_fmt(fmt!("{}", Slots(node.queues())));
            text.map(|text| text.to_bytes().len())
        };
        // A line for the HIQ, 28 slots and two engines' queues: the fake has no registers.
        let all = shown().unwrap();
        assert!(all > 31 * "  XCC 0, pipe 0, queue 0\n".len());
        fake.set_in_reset(true);
        assert_eq!(shown(), Ok("  Device is stopped\n".len()));
        fake.set_in_reset(false);
        assert_eq!(shown(), Ok(all));
    }

    #[test]
    fn who_looks_at_a_node_uses_its_device() {
        let gpu = Gpu::new(Fake::new().unwrap(), Gate::new().unwrap()).unwrap();
        let (id, sink) = (
            GpuId::new(1).unwrap(),
            Arc::new(NoSink, GFP_KERNEL).unwrap(),
        );
        let known = Node::new(gpu.clone(), 0, id, sink).unwrap();
        let handle = known.kgd().handle();
        register(known.clone()).unwrap();
        assert!(exists(id) && id_of(handle, 0) == Some(id));
        assert_eq!(gpu.users(), 0);
        let one = node(id).unwrap();
        let all = nodes().unwrap();
        assert_eq!((all.len(), gpu.users()), (1, 2));
        unregister(&[known]);
        assert!(!exists(id) && node(id).is_none());
        drop(one);
        assert_eq!((gpu.users(), gpu.processes()), (1, 0));
        let process = NodeUser::process(Arc::clone(all.first().unwrap()));
        assert_eq!((gpu.users(), gpu.processes()), (2, 1));
        drop(all);
        assert_eq!((gpu.users(), gpu.processes()), (1, 1));
        drop(process);
        assert_eq!((gpu.users(), gpu.processes()), (0, 0));
    }

    #[test]
    fn a_device_that_came_back_keeps_its_nodes() {
        let gpu = Gpu::new(Fake::new().unwrap(), Gate::new().unwrap()).unwrap();
        let sink = Arc::new(NoSink, GFP_KERNEL).unwrap();
        let [old, new] = [1, 2].map(|id| {
            let id = GpuId::new(id).unwrap();
            Node::new(gpu.clone(), 0, id, sink.clone()).unwrap()
        });
        for node in [&old, &new] {
            register(node.clone()).unwrap();
        }
        unregister(&[old.clone()]);
        assert!(!exists(old.id()) && exists(new.id()));
        unregister(&[new.clone()]);
        assert!(!exists(new.id()));
    }

    #[test]
    fn memory_of_no_partition_is_of_a_node_that_may_be_used() {
        let fake = Fake::with(|facts| facts.num_partitions = 2).unwrap();
        let gpu = Gpu::new(fake, Gate::new().unwrap()).unwrap();
        let sink = Arc::new(NoSink, GFP_KERNEL).unwrap();
        let both = [0, 1].map(|index| {
            let id = GpuId::new(index + 1).unwrap();
            let node = Node::new(gpu.clone(), index, id, sink.clone()).unwrap();
            register(node.clone()).unwrap();
            node
        });
        let device = both[0].kgd().handle();
        let raw = |partition, usable: &[u32]| {
            let may_use = |node: &Node| usable.contains(&node.index());
            id_of_memory(device, partition, may_use).map(|id| id.raw())
        };
        assert_eq!(
            (raw(0, &[]), raw(1, &[]), raw(2, &[0, 1])),
            (Some(1), Some(2), None)
        );
        assert_eq!(
            (raw(-1, &[0, 1]), raw(-1, &[1]), raw(-1, &[])),
            (Some(1), Some(2), Some(1))
        );
        assert_eq!(gpu.users(), 0);
        unregister(&both);
    }

    #[test]
    fn amdgpu_drives_the_graphics_cores_that_we_know() {
        for number in 0..=0xf_ffffu32 {
            // Beyond every version that exists: 15.255.255.
            let [_, major, minor, revision] = number.to_be_bytes();
            let gc = IpVersion::new(major, minor, revision);
            assert!(!Generation::knows(gc) || is_known_to_c(gc));
        }
    }

    #[test]
    fn a_chip_follows_the_facts_of_its_gpu() {
        let chip = |change: fn(&mut GpuFacts)| {
            let gpu = Gpu::new(Fake::with(change).unwrap(), Gate::new().unwrap()).unwrap();
            gpu.generation.chip
        };
        let whole = chip(|_| ());
        assert!(whole.mqds == MqdDomain::Vram && whole.per_queue_reset);
        assert_eq!(chip(|facts| facts.is_app_apu = true), whole);
        assert_eq!(chip(|facts| facts.prefers_gtt = true).mqds, MqdDomain::Gtt);
        let part = chip(|facts| facts.is_vf = true);
        assert!(part.mqds == MqdDomain::Vram && !part.per_queue_reset);
    }

    #[test]
    fn virtual_functions_are_refused() {
        let known = IpVersion::new(9, 4, 3);
        for allow_untested in [false, true] {
            assert!(check_support(known, false, allow_untested).is_ok());
            let refused = check_support(known, true, allow_untested);
            assert!(matches!(refused, Err(Unsupported::VirtualFunction)));
        }
    }

    #[test]
    fn partitions_of_one_xcc_share_the_vmids() {
        let mut facts = GpuFacts::zeroed();
        facts.compute_vmid_bitmap = 0xfff8;
        facts.num_partitions = 4;
        // AMDGPU_DPX_PARTITION_MODE: halves of several XCCs have hubs of their own.
        facts.partition_mode = 1;
        assert_eq!(vmids(&facts, 1), 0xfff8);
        facts.partition_mode = 4;
        // Of 13 VMIDs one is left out: 4 to 9 and 10 to 15.
        assert_eq!(
            [0, 1, 2].map(|index| vmids(&facts, index)),
            [0x3f0, 0xfc00, 0x3f0]
        );
        facts.num_partitions = 1;
        assert_eq!(vmids(&facts, 0), 0xfff8);
    }
}
