// SPDX-License-Identifier: GPL-2.0-only

//! Tests of packets.

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx9_pm4))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::super::*;
    use crate::{
        gfx::{
            testing::{
                hw_process,
                known, //
            },
            HwProcess, //
            LaunchMode,
            TrapMask,
        },
        ids::{DoorbellIndex, Pasid, UserVa},
    };

    fn map_queue(engine: Engine, wave_sync: bool) -> Packet {
        LONG.map_queue(&HwQueue {
            engine,
            doorbell: known(DoorbellIndex::new(0x1802)),
            mqd: known(GpuVa::new(0x80_0012_0000)),
            write_pointer: known(UserVa::new(0x7f12_3460_0038)),
            wave_sync,
        })
    }

    fn word(packet: &Packet, index: usize) -> u32 {
        packet.words().get(index).copied().unwrap_or(0)
    }

    #[test]
    fn set_resources_for_the_hiq() {
        let packet = LONG.set_resources(&Resources {
            vmid_mask: 0xff00,
            queue_mask: 0xffff_ffff_00ff_fffe,
            unmap_latency: 40,
            xnack_chain: false,
        });
        let expected = [
            0xc006_a000,
            0x2028_ff00,
            0x00ff_fffe,
            u32::MAX,
            u32::MAX,
            u32::MAX,
            0,
            0,
        ];
        assert_eq!(packet.words(), expected);
    }

    #[test]
    fn wave_sync_is_the_processs_and_one_queues() {
        let process = TRAPPING.map_process(&MapProcess {
            process: &hw_process(0x8001),
            queues: 1,
            wave_sync: 64,
            cleans: false,
        });
        assert_eq!(word(&process, 13), 1 << 22 | 1 << 7 | 64);
        let queue = map_queue(Engine::Compute, true);
        assert_eq!(word(&queue, 1), 1 << 29 | 1 << 12 | 1 << 4);
    }

    #[test]
    fn map_process_has_trap_handler_and_apertures() {
        let seen = sh_mem_9_4_3(ShMemOptions {
            lds_base: 1 << 48,
            scratch_base: 2 << 48,
            xnack: false,
            precise: false,
        });
        let packet = TRAPPING.map_process(&MapProcess {
            process: &HwProcess {
                pasid: known(Pasid::new(0x8001)),
                page_table_base: 0x12_3456_7001,
                sh_mem: seen,
                trap: Some((0xffff_ffbe_0000, 0xffff_ffbe_1000)),
                control: None,
            },
            queues: 3,
            wave_sync: 0,
            cleans: false,
        });
        let expected = [
            0xc013_a100,
            0x1400_8001,
            0x3456_7001,
            0x12,
            0x0001_0002,
            0x1118,
            0xffff_be00,
            0xff,
            0xffff_be10,
            0xff,
            0,
            0,
            0,
            0x00c0_0080,
            8,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        assert_eq!(packet.words(), expected);
    }

    #[test]
    fn a_debugger_sets_waves_watch_points_and_memory_operations() {
        let watch = |mode, mask| Some(Watch::new(mode, mask));
        let control = WaveControl {
            launch_mode: LaunchMode::Debug,
            dispatch_info: false,
            traps: TrapMask::new(1 << 31 | 0x81),
            replaces_traps: true,
            watches: [None, watch(1, 0x7fff_ff80), watch(3, u32::MAX), None],
            single_memory_operations: true,
        };
        let packet = TRAPPING.map_process(&MapProcess {
            process: &HwProcess {
                control: control.set(),
                ..hw_process(1)
            },
            queues: 0,
            wave_sync: 0,
            cleans: false,
        });
        assert_eq!(word(&packet, 1), 0x1401_0001);
        assert_eq!(word(&packet, 14), 0xa000 | 0x81 << 4 | 8 | 3 << 1);
        let watches = [0, 0xa0ff_ffff, 0xe0ff_ffff, 0];
        assert!((15..19).map(|index| word(&packet, index)).eq(watches));
        assert!((19..21).all(|index| word(&packet, index) == 0));
    }

    #[test]
    fn a_watch_point_of_9_4_2_begins_a_bit_lower() {
        let words = |format: &Pm4| {
            let control = WaveControl {
                watches: [
                    Some(Watch::new(0, 0xffff_ff00)),
                    Some(Watch::new(0, 0x7fff_ff80)),
                    Some(Watch::new(0, 0x3fff_ffc0)),
                    None,
                ],
                ..WaveControl::default()
            };
            wave_words(&control, format)
        };
        let valid = 1 << 31;
        let long = [0xff_fffc, 0xff_fffe, 0xff_ffff].map(|mask| mask | valid);
        assert_eq!(words(&LONG_FORMAT)[1..4], long);
        let trapping = [0xff_fffe, 0xff_ffff, 0x7f_ffff].map(|mask| mask | valid);
        assert_eq!(words(&TRAPPING_FORMAT)[1..4], trapping);
    }

    #[test]
    fn map_process_without_a_trap_handler() {
        let packet = TRAPPING.map_process(&MapProcess {
            process: &hw_process(1),
            queues: 0,
            wave_sync: 0,
            cleans: false,
        });
        assert!((6..10).all(|index| word(&packet, index) == 0));
        assert_eq!(packet.words().len(), 21);
    }

    #[test]
    fn map_queues_lets_the_scheduler_choose_the_slot() {
        let expected = [
            0xc005_a200,
            0x2000_0010,
            0x6008,
            0x0012_0000,
            0x80,
            0x3460_0038,
            0x7f12,
        ];
        assert_eq!(map_queue(Engine::Compute, false).words(), expected);
    }

    #[test]
    fn copy_engines_are_named_in_three_ways() {
        let selection = |engine| word(&map_queue(Engine::Sdma(engine), false), 1);
        assert_eq!(selection(0), 0x2800_0010);
        assert_eq!(selection(1), 0x2c00_0010);
        assert_eq!(selection(2), 0x2800_0014);
        assert_eq!(selection(7), 0x3c00_0014);
        assert_eq!(selection(8), 0x2000_0018);
        assert_eq!(selection(15), 0x3c00_0018);
    }

    #[test]
    fn a_run_list_is_valid_and_chained_if_asked() {
        let list = RunList {
            address: known(GpuVa::new(0xff_0041_2000)),
            dwords: 49,
            chain: false,
            concurrent_processes: 2,
        };
        let expected = [0xc002_a500, 0x0041_2000, 0xff, 0x0280_0031];
        assert_eq!(LONG.run_list(&list).words(), expected);
        let chained = LONG.run_list(&RunList {
            chain: true,
            ..list
        });
        assert_eq!(word(&chained, 3), 0x02d0_0031);
    }

    #[test]
    fn unmap_and_fence() {
        let fence = known(GpuVa::new(0xff_0040_0c00));
        let packets = LONG.unmap_all(fence, 0x1_0000_0007);
        let (unmap, query) = packets.words().split_at(6);
        assert_eq!(unmap, [0xc004_a300, 0x30, 0, 0, 0, 0]);
        let expected = [0xc005_a400, 0x8000_0000, 0, 0x0040_0c00, 0xff, 7, 1];
        assert_eq!(query, expected);
    }

    #[test]
    fn one_register_is_written() {
        let expected = [0xc003_3700, 0x1_0000, 0x2345, 0, 0x4001];
        assert_eq!(LONG.write_register(0x2345, 0x4001).words(), expected);
    }

    #[test]
    fn the_filler_is_one_word_long() {
        assert_eq!(NOP, 0xffff_1000);
    }

    #[test]
    fn retry_follows_xnack() {
        let options = ShMemOptions {
            lds_base: 0,
            scratch_base: 0,
            xnack: true,
            precise: false,
        };
        assert_eq!(sh_mem_9_4_3(options).config, 0x118);
    }
}
