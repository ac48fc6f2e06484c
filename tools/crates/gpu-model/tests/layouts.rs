// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Compares the layouts that the model uses with AMD's headers: packets, descriptors, interrupt
//! entries, and the numbers in them. The headers are those of the kernel source that the module is
//! built with.

#[path = "support/c_header.rs"]
mod c_header;
#[path = "support/kernel_tree.rs"]
mod kernel_tree;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use c_header::{number, CField, Header};
use gpu_model::cp::mqd;
use gpu_model::cp::packet::PACKETS;
use gpu_model::layout::{Field, Layout, Source};
use gpu_model::sdma;

/// AMD's headers, each read once.
struct Headers {
    root: PathBuf,
    read: RefCell<HashMap<String, Rc<Header>>>,
}

impl Headers {
    fn new() -> Self {
        Headers {
            root: kernel_tree::kernel_tree().join("drivers/gpu/drm/amd"),
            read: RefCell::default(),
        }
    }

    fn get(&self, name: &str) -> Rc<Header> {
        let mut read = self.read.borrow_mut();
        let header = read.entry(name.into()).or_insert_with(|| {
            let path = self.root.join(name);
            let text = std::fs::read_to_string(&path);
            let text = text.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            Rc::new(Header::parse(&text))
        });
        header.clone()
    }
}

/// Where a header has a field. The dword is not known everywhere.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    dword: Option<usize>,
    shift: u32,
    width: Option<u32>,
}

impl Place {
    fn of(field: &CField) -> Self {
        Place {
            dword: Some(field.dword),
            shift: field.shift,
            width: Some(field.width),
        }
    }

    /// Whether the model has the field there.
    fn is(&self, field: &Field, first: usize) -> bool {
        self.dword.is_none_or(|dword| dword == field.dword + first)
            && self.shift == field.shift
            && self.width.is_none_or(|width| width == field.width)
    }
}

/// The place of a field in one of AMD's headers, if that has it.
fn place(headers: &Headers, source: Source, name: &str) -> Option<Place> {
    match source {
        Source::Struct(header, wanted) => {
            let header = headers.get(header);
            let fields = header.structure(wanted);
            let is_it = |field: &&CField| field.name.eq_ignore_ascii_case(name);
            fields.iter().find(is_it).map(Place::of)
        }
        Source::Place(header, prefix) => {
            let header = headers.get(header);
            let macros = ["__", "_"].map(|between| format!("{prefix}{between}{name}(x)"));
            let text = macros.iter().find_map(|name| header.macros.get(name))?;
            Some(shifted(text))
        }
        Source::Offset(header, prefix) => offset(&headers.get(header), prefix, name),
        Source::Register(header, register) => {
            let header = headers.get(header);
            let shift = header.number(&format!("{register}__{name}__SHIFT"))?;
            let mask = header.number(&format!("{register}__{name}_MASK"))?;
            assert_eq!(mask.trailing_zeros(), shift, "{register}.{name}");
            Some(Place {
                dword: None,
                shift,
                width: Some(mask.count_ones()),
            })
        }
        Source::Entry(header, prefix) => {
            let header = headers.get(header);
            let text = header
                .macros
                .get(&format!("{prefix}_{name}_FROM_IH_ENTRY(entry)"))?;
            let dword = text.split(['[', ']']).nth(1)?.parse().ok()?;
            let shift = text.split(">>").nth(1).map_or(Some(0), first_number)?;
            let mask = text
                .split('&')
                .nth(1)
                .map_or(Some(u32::MAX), first_number)?;
            Some(Place {
                dword: Some(dword),
                shift,
                width: Some(mask.count_ones()),
            })
        }
    }
}

fn first_number(text: &str) -> Option<u32> {
    number(text.split_whitespace().next()?)
}

/// A macro that masks and shifts a value: `((x & MASK) << SHIFT)`.
fn shifted(text: &str) -> Place {
    let shift = text.split("<<").nth(1).and_then(first_number);
    let mask = text.split('&').nth(1).and_then(first_number);
    Place {
        dword: None,
        shift: shift.unwrap_or(0),
        width: mask.map(u32::count_ones),
    }
}

/// A packet's field by three macros. The word that the field is in stands between the packet's name
/// and the field's; another packet's name may begin alike, and makes the name longer.
fn offset(header: &Header, prefix: &str, name: &str) -> Option<Place> {
    let end = format!("_{}_offset", name.to_ascii_lowercase());
    let fits = |key: &&String| key.starts_with(&format!("{prefix}_")) && key.ends_with(&end);
    let found = header
        .macros
        .keys()
        .filter(fits)
        .min_by_key(|key| key.len())?;
    let stem = found.strip_suffix("offset")?;
    let value = |what: &str| {
        header
            .number(&format!("{stem}{what}"))
            .expect("the three of them")
    };
    Some(Place {
        dword: Some(value("offset") as usize),
        shift: value("shift"),
        width: Some(value("mask").count_ones()),
    })
}

/// A field that is the low half of 64 bits: whether a high half follows in AMD's structure.
fn has_high_half(headers: &Headers, source: Source, field: &Field, first: usize) -> bool {
    let Source::Struct(header, wanted) = source else {
        return true;
    };
    let is_low = field.name.split('_').any(|part| part.starts_with("LO"));
    let header = headers.get(header);
    let next = field.dword + first + 1;
    let is_high = |it: &CField| it.dword == next && it.name.contains("_hi");
    !is_low || header.structure(wanted).iter().any(is_high)
}

/// Compares fields with where a layout's headers have them: what is wrong.
fn compare(headers: &Headers, layout: &Layout, fields: &[Field]) -> Vec<String> {
    let mut wrong = Vec::new();
    for field in fields {
        let mut said = 0;
        for source in layout.sources {
            let Some(place) = place(headers, *source, field.name) else {
                continue;
            };
            said += 1;
            let is_it = place.is(field, layout.first);
            let whole = has_high_half(headers, *source, field, layout.first);
            if is_it == field.unlike.is_some() || !whole {
                wrong.push(format!("{}: {field:?}: {source:?}: {place:?}", layout.name));
            }
        }
        if said == 0 {
            wrong.push(format!("{}: {}: in no header", layout.name, field.name));
        }
    }
    wrong
}

fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fields_are_where_amds_headers_have_them() {
    let headers = Headers::new();
    let wrong: Vec<String> = gpu_model::layouts()
        .flat_map(|it| compare(&headers, it, it.fields))
        .collect();
    none(&wrong);
    let fields: usize = gpu_model::layouts().map(|layout| layout.fields.len()).sum();
    assert!(fields > 180, "only {fields} fields compared");
}

#[test]
fn a_wrong_place_is_noticed() {
    let headers = Headers::new();
    for layout in gpu_model::layouts() {
        for field in layout.fields {
            let moved = Field {
                shift: field.shift ^ 1,
                ..*field
            };
            let noticed = !compare(&headers, layout, &[moved]).is_empty();
            assert!(
                noticed || field.unlike.is_some(),
                "{}: {moved:?}",
                layout.name
            );
        }
    }
}

#[test]
fn constants_are_those_of_amds_headers() {
    let headers = Headers::new();
    let mut wrong = Vec::new();
    for table in gpu_model::values() {
        for (name, value) in table.values {
            let amds = headers
                .get(table.header)
                .number(&format!("{}{name}", table.prefix));
            if amds != Some(*value) {
                wrong.push(format!("{}: {name}: {value:#x}, not {amds:x?}", table.name));
            }
        }
    }
    none(&wrong);
}

#[test]
fn pm4_opcodes_are_amds() {
    let headers = Headers::new();
    let (amdgpu, kfd) = (
        headers.get("amdgpu/soc15d.h"),
        headers.get("amdkfd/kfd_pm4_opcodes.h"),
    );
    // Of hardware, and in no header of the kernel: ROCr and AMD's PAL name them.
    let elsewhere = ["WAIT_REG_MEM64", "MAP_PROCESS_VM"];
    for packet in PACKETS {
        let known = amdgpu.number(&format!("PACKET3_{}", packet.name));
        let known = known.or_else(|| kfd.number(&format!("IT_{}", packet.name)));
        let is_known = known.is_some() != elsewhere.contains(&packet.name);
        assert!(is_known, "{}: {known:x?}", packet.name);
        assert!(
            known.is_none_or(|op| op == packet.op.into()),
            "{}: {known:x?}",
            packet.name
        );
    }
}

#[test]
fn the_queues_descriptor_is_struct_v9_mqd() {
    let headers = Headers::new();
    let structures = headers.get("include/v9_structs.h");
    let fields = structures.structure("v9_mqd");
    let at = |name: &str| fields.iter().find(|it| it.name.eq_ignore_ascii_case(name));
    for (name, dword) in mqd::DWORDS {
        let field = at(name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(field.dword, *dword, "{name}");
    }
    assert_eq!(at("cp_mqd_base_addr_lo").unwrap().dword, mqd::HQD_FIRST);
    assert_eq!(
        mqd::AQL_DISPATCH_ID_HI + 1 - mqd::HQD_FIRST,
        mqd::HQD_DWORDS
    );
    assert_eq!(at("compute_user_data_15").unwrap().dword, mqd::SH_SAVED);
    assert!(at("queue_doorbell_id15").unwrap().dword < mqd::MQD_DWORDS);
}

/// The dwords of an MQD that are images of registers lie as the registers do. Not the chunk size:
/// the firmware's dword 40 (compute_restart_cg_tg_id) lies between.
#[test]
fn the_descriptors_images_are_in_the_order_of_the_registers() {
    let headers = Headers::new();
    let registers = headers.get("include/asic_reg/gc/gc_9_4_3_offset.h");
    let structures = headers.get("include/v9_structs.h");
    let images = [
        (1, mqd::SH_SAVED, "COMPUTE_DISPATCH_INITIATOR"),
        (mqd::HQD_FIRST, mqd::HQD_DWORDS, "CP_MQD_BASE_ADDR"),
    ];
    for (first, count, base) in images {
        let base = registers.number(&format!("reg{base}")).unwrap() as usize;
        let image = first..first + count;
        let mut compared = 0;
        for field in structures.structure("v9_mqd") {
            let name = field.name.to_ascii_uppercase();
            let register = [name.as_str(), name.trim_end_matches("_LO")];
            let mut register = register
                .iter()
                .filter_map(|it| registers.number(&format!("reg{it}")));
            let is_other = name == "COMPUTE_TG_CHUNK_SIZE" || !image.contains(&field.dword);
            if let Some(offset) = register.next().filter(|_| !is_other) {
                assert_eq!(offset as usize - base, field.dword - first, "{name}");
                compared += 1;
            }
        }
        assert!(compared > 45, "only {compared} of {count} compared");
    }
    // Reserved in the structure, and an image all the same.
    let base = registers.number("regCP_MQD_BASE_ADDR").unwrap() as usize;
    let images = [mqd::AQL_DISPATCH_ID_LO, mqd::AQL_DISPATCH_ID_HI];
    for (dword, name) in images.into_iter().zip(["ID", "ID_HI"]) {
        let register = registers.number(&format!("regCP_HQD_AQL_DISPATCH_{name}"));
        let place = register.map(|register| register as usize - base);
        assert_eq!(place, Some(dword - mqd::HQD_FIRST), "{name}");
    }
}

#[test]
fn a_copy_queues_descriptor_is_struct_v9_sdma_mqd() {
    let headers = Headers::new();
    let registers = headers.get("include/asic_reg/sdma/sdma_4_4_2_offset.h");
    let structures = headers.get("include/v9_structs.h");
    let fields = structures.structure("v9_sdma_mqd");
    let ring = |name: &str| registers.number(&format!("regSDMA_RLC0_{name}"));
    let base = ring("RB_CNTL").unwrap();
    for field in &fields[..sdma::MQD_DWORDS] {
        let name = field
            .name
            .strip_prefix("sdmax_rlcx_")
            .expect("a register's image");
        let offset = ring(&name.to_ascii_uppercase()).expect(name) - base;
        assert_eq!(sdma::context_of_mqd(field.dword), offset as usize, "{name}");
    }
    let token = &fields[sdma::MQD_SAVED_TOKEN as usize];
    assert!(token.name.starts_with("reserved_"), "{token:?}");
    for (name, offset) in sdma::layout::CONTEXT {
        assert_eq!(ring(name), Some(base + *offset as u32), "{name}");
    }
}

#[test]
fn structures_are_read_with_unions_and_bit_fields() {
    let text = "#define A(x) ((x) << 3) /* a\n comment */\n#define B 0x1fL // two\n
        enum e { ONE = 1, TWO, THREE = TWO };
        struct s {
            union { struct { uint32_t a:2; enum e b:30; } c; uint32_t d; };
            uint32_t e[3]; enum e f;
        };";
    let header = Header::parse(text);
    assert_eq!(header.macros["A(x)"], "((x) << 3)");
    assert_eq!(header.number("B"), Some(0x1f));
    assert_eq!((header.values["TWO"], header.values["THREE"]), (2, 2));
    let places = header.structure("s");
    let places = places.iter();
    let places: Vec<_> = places
        .map(|it| (it.name.as_str(), it.dword, it.shift, it.width))
        .collect();
    let wanted = [
        ("a", 0, 0, 2),
        ("b", 0, 2, 30),
        ("d", 0, 0, 32),
        ("e", 1, 0, 32),
        ("f", 4, 0, 32),
    ];
    assert_eq!(places, wanted);
}
