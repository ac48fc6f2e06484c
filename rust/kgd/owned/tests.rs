// SPDX-License-Identifier: GPL-2.0-only

//! Tests of owners.

#[kernel::macros::kunit_tests(amdkfd_kgd)]
mod tests {
    use super::super::*;
    use crate::kgd::{
        fake::{
            Fake,
            Live, //
        },
        Device,
        ProcessMemory, //
    };

    #[test]
    fn a_kernel_buffer_is_zeroed_and_stays_inside_itself() {
        let fake = Fake::new().unwrap();
        let bo = KernelBo::new(fake.clone(), 4096, Domain::Gtt, false).unwrap();
        assert_eq!(bo.read_u64(4088), Ok(0));
        bo.write_u32(4092, 5).unwrap();
        assert_eq!(bo.read_u64(4088), Ok(5 << 32));
        assert_eq!(bo.read_u32(4096), Err(EINVAL));
        assert_eq!(bo.read_u32(2), Err(EINVAL));
        assert_eq!(bo.write_u64(4092, 0), Err(EINVAL));
        assert_eq!(bo.fill(usize::MAX, 2, 0), Err(EINVAL));
        assert_eq!(bo.write_dwords(4088, &[1, 2, 3]), Err(EINVAL));
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let fake = Fake::new().unwrap();
        {
            let _bo = KernelBo::new(fake.clone(), 64, Domain::Vram, true).unwrap();
            let _doorbells = Doorbells::new(fake.clone(), 4096, true).unwrap();
            let _awake = PowerGuard::new(fake.clone()).unwrap();
            let _no_reset = ResetGuard::try_new(&*fake).unwrap();
            let wanted = [QueueBuffer {
                address: GpuVa::new(0x1000).unwrap(),
                size: 4096,
            }; 5];
            let _kept = QueueBuffers::get(fake.vm().unwrap(), &wanted).unwrap();
            let live = fake.live();
            assert_eq!(
                (live.bos, live.doorbells, live.processes, live.vms),
                (1, 1, 1, 1)
            );
            assert_eq!(
                (live.awake, live.reset_locks, live.queue_buffers),
                (1, 1, 5)
            );
        }
        assert_eq!(fake.live(), Live::default());
    }

    #[test]
    fn a_mapped_buffer_is_not_freed() {
        let fake = Fake::new().unwrap();
        let vm = fake.vm().unwrap();
        let memory = Memory::alloc(vm.clone(), (0x1000, 4096), 4096, 0, 0).unwrap();
        vm.map(&memory).unwrap();
        let Err((error, memory)) = memory.free() else {
            panic!("freed while mapped");
        };
        assert_eq!(error, EBUSY);
        vm.unmap(&memory).unwrap();
        assert!(memory.free().is_ok());
        assert_eq!(fake.live().memories, 0);
    }

    #[test]
    fn a_buffer_that_cannot_be_freed_keeps_its_vm_for_ever() {
        let fake = Fake::new().unwrap();
        let vm = fake.vm().unwrap();
        let alloc = || Memory::alloc(vm.clone(), (0x1000, 4096), 4096, 0, 0).unwrap();
        drop(alloc());
        assert_eq!(fake.live().kept_files, 0);
        let memory = alloc();
        let leaked = MemoryHandle(memory.raw.0);
        fake.interrupt_free();
        drop(memory);
        assert_eq!((fake.live().kept_files, fake.live().memories), (1, 1));
        fake.free_memory(&vm.raw, &leaked, false).unwrap();
    }

    #[test]
    fn a_buffer_keeps_its_vm_and_that_its_process() {
        let fake = Fake::new().unwrap();
        let memory = Memory::alloc(fake.vm().unwrap(), (0x1000, 4096), 4096, 0, 0).unwrap();
        assert_eq!((fake.live().vms, fake.live().processes), (1, 1));
        let memory = Arc::new(memory, GFP_KERNEL).unwrap();
        let mapping = KernelMapping::new(memory).unwrap();
        mapping.write_u64(8, 42).unwrap();
        assert_eq!(mapping.read_u64(8), Ok(42));
        assert_eq!(mapping.read_u64(4096), Err(EINVAL));
        drop(mapping);
        assert_eq!(fake.live(), Live::default());
    }

    #[test]
    fn doorbells_are_rung_inside_their_pages_only() {
        let fake = Fake::new().unwrap();
        let doorbells = Doorbells::new(fake.clone(), 4096, true).unwrap();
        doorbells.ring(4088, 1).unwrap();
        assert_eq!(doorbells.ring(4096, 1), Err(EINVAL));
        assert_eq!(doorbells.ring(4, 1), Err(EINVAL));
        assert_eq!(fake.live().rings, 1);
        let address = fake.facts().doorbell_address + 0x400 * 4;
        assert_eq!(doorbells.physical_address(), address);
        let unmapped = Doorbells::new(fake, 4096, false).unwrap();
        assert_eq!(unmapped.ring(0, 1), Err(EINVAL));
    }

    #[test]
    fn no_hardware_is_touched_during_a_reset() {
        let fake = Fake::new().unwrap();
        fake.set_in_reset(true);
        assert!(ResetGuard::try_new(&*fake).is_err());
        fake.set_in_reset(false);
        assert!(ResetGuard::try_new(&*fake).is_ok());
    }

    #[test]
    fn a_vm_needs_a_file() {
        let fake = Fake::new().unwrap();
        let context = Arc::new(MemoryContext::new(fake.clone(), 7).unwrap(), GFP_KERNEL).unwrap();
        assert!(Vm::acquire(fake.clone(), context, -1).is_err());
        assert_eq!(fake.live(), Live::default());
        let vm = fake.vm().unwrap();
        assert!(vm.is_file(3) && !vm.is_file(4));
        assert_eq!(vm.pasid().raw(), 3);
    }
}
