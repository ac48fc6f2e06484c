// SPDX-License-Identifier: GPL-2.0-only

//! Tests of descriptors.

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx9_mqd))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::super::*;
    use crate::{
        gfx::{
            testing::{known, TestWords},
            SaveArea, //
        },
        ids::UserVa, //
    };

    const MQD: &dyn MqdFormat = MANY_XCCS;

    fn va(address: u64) -> GpuVa {
        known(GpuVa::new(address))
    }

    fn doorbell(index: u32) -> DoorbellIndex {
        known(DoorbellIndex::new(index))
    }

    fn user(address: u64) -> UserVa {
        known(UserVa::new(address))
    }

    fn aql() -> ComputeQueue {
        ComputeQueue {
            format: ComputeFormat::Aql,
            ring: va(0x7f12_3450_0000),
            ring_bytes: 0x10000,
            read_pointer: user(0x7f12_3460_0080),
            write_pointer: user(0x7f12_3460_0038),
            doorbell: doorbell(0x1802),
            eop: (va(0), 0),
            save_area: Some(SaveArea {
                address: va(0x7f12_3500_0000),
                bytes: 0x2d2000,
                control_stack: 0x1000,
            }),
            trap_handler: true,
            priority: 7,
        }
    }

    fn at(xcc: u32) -> XccMqd {
        XccMqd {
            xcc,
            address: va(0x80_0012_0000 + 0x2000 * u64::from(xcc)),
            stride: 0x2000,
            logical_xcc: (xcc + 3) % 4,
        }
    }

    fn new(xcc: u32, queue: &ComputeQueue) -> TestWords {
        let words = TestWords::new();
        MQD.compute(&words, at(xcc), queue);
        words
    }

    #[test]
    fn a_restored_queue_has_no_rights_but_its_own() {
        let hostile = [u32::MAX; BYTES / 4];
        for format in [PLAIN, SPREADING, MANY_XCCS, GFX10] {
            let words = TestWords::new();
            format.compute(&words, at(1), &aql());
            let own = TestWords::new();
            format.compute(&own, at(1), &aql());
            format.take_over(&words, &aql(), &hostile, 6);
            // PRIV_STATE and KMD_QUEUE, IB_PRIV_STATE, and PRIV of the dispatch.
            let control = words.get(dword::CP_HQD_PQ_CONTROL);
            assert_eq!(control >> 30, 0);
            assert_eq!(words.get(dword::CP_HQD_IB_CONTROL) & 1 << 30, 0);
            assert_eq!(words.get(19) & 1 << 20, 0);
            // Nothing of it that the firmware follows on its own account, and no packet.
            let ours = (11..=12).chain([21, 106, 128, 129, 131, 133, 135, 136]);
            let more = (120..=127)
                .chain(139..=143)
                .chain(150..=155)
                .chain(165..=167);
            let last = (171..=173).chain([175, 177, 178, 181, 184]).chain(187..512);
            for dword in ours.chain(more).chain(last) {
                assert_eq!((dword, words.get(dword)), (dword, own.get(dword)));
            }
            // What was saved lies in the area.
            let saved = format.saved_waves(&words);
            assert_eq!(saved.control_stack_offset, 0x1000);
            assert_eq!(saved.wave_state_offset, 0x2d2000);
            assert_eq!(words.get(138), u32::MAX);
        }
    }

    #[test]
    fn a_restored_queue_goes_on_where_it_was() {
        let words = new(1, &aql());
        let mut saved = [0; BYTES / 4];
        let kept = [
            (dword::COMPUTE_CURRENT_LOGIC_XCC_ID, 3),
            (dword::COMPUTE_STATIC_THREAD_MGMT_SE[0], 0xff),
            // The packet that is dispatched, its scratch, and COMPUTE_PGM_RSRC3, in whichever of
            // the reserved words it is.
            (15, 0x1000),
            (16, 0x7f),
            (17, 0x2000),
            (18, 0x3f),
            (46, 7),
            (47, 1 << 16),
            (138, 0x40),
            (182, 0x80),
            (dword::CP_HQD_CNTL_STACK_OFFSET, 0xf00),
            (dword::CP_HQD_WG_STATE_OFFSET, 0x3000),
        ];
        for (dword, value) in kept {
            saved[dword] = value;
        }
        saved[dword::CP_HQD_PERSISTENT_STATE] = 1 << 31;
        MQD.take_over(&words, &aql(), &saved, 4);
        let own = [
            (dword::CP_HQD_CNTL_STACK_SIZE, 0x1000),
            (dword::CP_HQD_PERSISTENT_STATE, 0xc000_5301),
        ];
        for (dword, value) in kept.into_iter().chain(own) {
            assert_eq!((dword, words.get(dword)), (dword, value));
        }
        // One of no XCC is another one's.
        saved[dword::COMPUTE_CURRENT_LOGIC_XCC_ID] = 9;
        MQD.take_over(&words, &aql(), &saved, 4);
        assert_eq!(words.get(dword::COMPUTE_CURRENT_LOGIC_XCC_ID), 1);
        assert_eq!(MQD.target_xcc(&[0x302; BYTES / 4]), 2);
        assert_eq!((MQD.target_xcc(&[]), PLAIN.target_xcc(&[7; 512])), (0, 0));
    }

    #[test]
    fn a_ring_is_found_again_and_a_vmid_is_one_word() {
        let words = new(0, &aql());
        assert_eq!(MQD.ring(&words), Some(aql().ring));
        MQD.set_vmid(&words, known(Vmid::new(9)));
        assert_eq!(words.get(dword::CP_HQD_VMID), 9);
    }

    /// Index and value of every word that is not zero: the whole descriptor at a glance.
    const AQL_MASTER: [(usize, u32); 35] = [
        (0, 0xc031_0800),
        (11, 1),
        (20, 0x40),
        (23, u32::MAX),
        (24, u32::MAX),
        (26, u32::MAX),
        (27, u32::MAX),
        (39, 3),
        (40, u32::MAX),
        (41, 1),
        (42, u32::MAX),
        (128, 0x0012_0000),
        (129, 0x80),
        (132, 0x4000_5301),
        (133, 1),
        (135, 0x111),
        (136, 0x1234_5000),
        (137, 0x7f),
        (139, 0x3460_0080),
        (140, 0x7f12),
        (141, 0x3460_0038),
        (142, 0x7f12),
        (143, 0x6008 | 2),
        (145, 0x1401_450d),
        (149, 0x00b0_0000),
        (160, 0x4000),
        (162, 0x100),
        (171, 0x3500_0000),
        (172, 0x7f12),
        (174, 0x1000),
        (175, 0x1000),
        (176, 0x1000),
        (177, 0x2d2000),
        (181, 1),
        (226, 0x2000),
    ];

    #[test]
    fn an_aql_queue_word_by_word() {
        assert!(new(0, &aql()).written().eq(AQL_MASTER));
    }

    #[test]
    fn followers_differ_from_the_master_in_four_words() {
        let (master, follower) = (new(0, &aql()), new(2, &aql()));
        let differs = (0..512).filter(|&word| master.get(word) != follower.get(word));
        assert!(differs.eq([39, 128, 145, 171]));
        assert_eq!(follower.get(39), 1);
        assert_eq!(follower.get(145), 0x1c01_450d);
        assert_eq!(follower.get(171), 0x355a_4000);
    }

    #[test]
    fn a_pm4_queue_runs_on_one_xcc() {
        let queue = ComputeQueue {
            format: ComputeFormat::Pm4 { target_xcc: 2 },
            ..aql()
        };
        let words = new(1, &queue);
        assert_eq!(words.get(dword::CP_HQD_PQ_CONTROL), 0x1000_050d);
        assert_eq!(words.get(dword::CP_HQD_PQ_DOORBELL_CONTROL), 0x6008);
        assert_eq!(words.get(dword::COMPUTE_CURRENT_LOGIC_XCC_ID), 0);
        assert_eq!(words.get(dword::COMPUTE_TG_CHUNK_SIZE), 0);
        assert_eq!(words.get(dword::PM4_TARGET_XCC_IN_XCP), 2);
        assert_eq!(words.get(dword::CP_HQD_AQL_CONTROL), 0);
    }

    #[test]
    fn without_a_save_area_waves_are_waited_for() {
        let queue = ComputeQueue {
            save_area: None,
            trap_handler: false,
            ..aql()
        };
        let words = new(0, &queue);
        assert_eq!(words.get(dword::CP_HQD_PERSISTENT_STATE), 0x5301);
        assert!((171..178).all(|word| words.get(word) == 0));
        assert_eq!(words.get(dword::COMPUTE_PGM_RSRC2), 0);
    }

    #[test]
    fn an_update_keeps_what_the_hardware_saved() {
        let words = new(0, &aql());
        words.set(138, 0x1234);
        words.set(182, 0x5678);
        // WPTR_CARRY and RPTR_CARRY: the hardware's own.
        words.set(145, words.get(145) | 0xc0);
        words.set(dword::CP_HQD_CTX_SAVE_CONTROL, 7);
        let queue = ComputeQueue {
            ring_bytes: 0x20000,
            priority: 15,
            ..aql()
        };
        MQD.update(&words, 0, &queue);
        assert_eq!(words.get(138), 0x1234);
        assert_eq!(words.get(182), 0x5678);
        assert_eq!(words.get(145), 0x1401_45ce);
        assert_eq!(words.get(dword::CP_HQD_PIPE_PRIORITY), 2);
        assert_eq!(words.get(dword::CP_HQD_CTX_SAVE_CONTROL), 0);
        assert_eq!(words.get(dword::COMPUTE_CURRENT_LOGIC_XCC_ID), 3);
    }

    #[test]
    fn ring_and_eop_sizes_are_coded() {
        assert_eq!(queue_size(1024), 7);
        assert_eq!(queue_size(1 << 31), 28);
        assert_eq!(eop_size(0), 0);
        assert_eq!(eop_size(4096), 9);
        assert_eq!(eop_size(4104), 10);
        assert_eq!(eop_size(1 << 20), EOP_SIZE_MAX);
    }

    #[test]
    fn priorities_fall_into_three() {
        let coded = (0..16).map(pipe_priority);
        assert!(coded.eq([0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]));
    }

    #[test]
    fn the_schedulers_own_queue_is_privileged() {
        let queue = HiqQueue {
            ring: va(0xff_0040_0000),
            ring_bytes: 2048,
            read_pointer: va(0xff_0040_0800),
            write_pointer: va(0xff_0040_0a00),
            eop: (va(0xff_0040_1000), 4096),
            doorbell: doorbell(0x400),
        };
        let (master, follower) = (TestWords::new(), TestWords::new());
        let at = |xcc| XccMqd {
            stride: 2048,
            ..at(xcc)
        };
        MQD.hiq(&master, at(0), &queue);
        MQD.hiq(&follower, at(1), &queue);
        assert_eq!(master.get(dword::CP_HQD_PQ_CONTROL), 0xd000_0508);
        assert_eq!(follower.get(dword::CP_HQD_PQ_CONTROL), 0xd800_0508);
        assert_eq!(master.get(dword::CP_HQD_EOP_CONTROL), 9);
        assert_eq!(master.get(dword::CP_MQD_STRIDE_SIZE), 2048);
        assert_eq!(master.get(dword::COMPUTE_CURRENT_LOGIC_XCC_ID), u32::MAX);
    }

    #[test]
    fn a_failed_preemption_is_reported_once() {
        let words = TestWords::new();
        assert_eq!(MQD.take_failed_doorbell(&words), None);
        words.set(dword::QUEUE_DOORBELL_ID0, 0x1802);
        assert_eq!(MQD.take_failed_doorbell(&words), Some(0x1802));
        assert_eq!(MQD.take_failed_doorbell(&words), None);
    }

    #[test]
    fn a_new_queue_has_saved_nothing() {
        let saved = MQD.saved_waves(&new(0, &aql()));
        assert_eq!(saved.control_stack_offset, saved.control_stack_size);
        assert_eq!(saved.wave_state_offset, saved.control_stack_size);
        assert_ne!(saved.control_stack_size, 0);
    }

    #[test]
    fn a_cu_mask_has_a_word_for_each_engine() {
        let mask = [1, 2, 3, 4, 5, 6, 7, 8];
        let places = [23, 24, 25, 26, 27, 39, 40, 41, 42];
        let words = new(0, &aql());
        MQD.set_cu_mask(&words, mask);
        let ours = places.map(|word| words.get(word));
        assert_eq!(ours, [1, 2, 0, 3, 4, 3, u32::MAX, 1, u32::MAX]);
        let words = TestWords::new();
        PLAIN.compute(&words, at(0), &aql());
        PLAIN.set_cu_mask(&words, mask);
        let ours = places.map(|word| words.get(word));
        assert_eq!(ours, [1, 2, 0, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn waves_are_spread_while_they_synchronise() {
        let words = new(0, &aql());
        let limits = words.get(22);
        MQD.spread_waves(&words, true);
        assert_eq!(words.get(22), limits | 1 << 23);
        MQD.update(&words, 0, &aql());
        assert_eq!(words.get(22), limits | 1 << 23);
        MQD.spread_waves(&words, false);
        assert_eq!(words.get(22), limits);
    }

    #[test]
    fn the_control_stack_follows_at_a_page() {
        assert_eq!(MQD.stride(0x1000), 0x2000);
        assert_eq!(MQD.stride(1), 0x2000);
        assert_eq!(MQD.stride(0x3000), 0x4000);
    }
}
