// SPDX-License-Identifier: GPL-2.0-only

//! Graphics cores 9.0 to 9.5 with SDMA 4: the formats, of which these four combinations exist.

pub(super) mod ih;
pub(super) mod mqd;
#[cfg(CONFIG_RUST)]
mod oracle;
pub(super) mod pm4;
pub(super) mod sdma;

use super::Formats;

/// Graphics cores 9.0.1 to 9.4.1.
pub(super) static GFX9: Formats = Formats {
    mqd: mqd::PLAIN,
    sdma: sdma::SDMA,
    runlist: pm4::SHORT,
    ih: ih::PLAIN,
    sh_mem: pm4::sh_mem,
};

/// Graphics core 9.4.2.
pub(super) static GFX9_4_2: Formats = Formats {
    mqd: mqd::SPREADING,
    sdma: sdma::SDMA,
    runlist: pm4::LONG,
    ih: ih::PLAIN,
    sh_mem: pm4::sh_mem,
};

/// Graphics cores 9.4.3 and 9.4.4: several XCCs.
pub(super) static GFX9_4_3: Formats = Formats {
    mqd: mqd::MANY_XCCS,
    sdma: sdma::SDMA,
    runlist: pm4::TRAPPING,
    ih: ih::NODES,
    sh_mem: pm4::sh_mem_9_4_3,
};

/// Graphics core 9.5.0.
pub(super) static GFX9_5_0: Formats = Formats {
    mqd: mqd::MANY_XCCS,
    sdma: sdma::SDMA,
    runlist: pm4::TRAPPING,
    ih: ih::NODES,
    sh_mem: pm4::sh_mem_9_5_0,
};

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx_gfx9))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::{
        super::{
            testing::hw_process,
            HwProcess,
            MapProcess,
            WaveControl, //
        },
        *, //
    };

    #[test]
    fn waves_keep_dispatch_information_always_or_where_it_is_asked_for() {
        let launch = |formats: &Formats, dispatch_info| {
            let control = WaveControl {
                dispatch_info,
                ..WaveControl::default()
            };
            let packet = formats.runlist.map_process(&MapProcess {
                process: &HwProcess {
                    control: control.set(),
                    ..hw_process(1)
                },
                queues: 0,
                wave_sync: 0,
                cleans: false,
            });
            // SPI_GDBG_PER_VMID_CNTL
            packet.words()[14]
        };
        for (formats, words) in [
            (&GFX9_4_2, [0, 8]),
            (&GFX9_4_3, [8, 8]),
            (&GFX9_5_0, [8, 8]),
        ] {
            assert_eq!([false, true].map(|asked| launch(formats, asked)), words);
        }
    }
}
