// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How the fields of the KFD's structs read best: which are flags, which name something, and what
//! lies behind which pointer. A field without a rule is a number, so that nothing is left out.

/// How a number is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As a decimal number.
    Decimal,
    /// As a signed decimal number.
    Signed,
    /// As a hexadecimal number.
    Hex,
    /// As one of the constants with this prefix.
    Name(&'static str),
    /// As a set of the constants with this prefix.
    Flags(&'static str),
    /// As a set of `EC_*`: bit `EC - 1` for each.
    Exceptions,
    /// As the union's field that this choice takes.
    Union(&'static [&'static str]),
    /// An SVM attribute's value, which its `type` explains.
    SvmValue,
    /// Left out: it says nothing.
    Padding,
}

/// What a pointer leads to; the name is that of the field with the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointee {
    /// 32-bit numbers.
    Words(&'static str),
    /// One 32-bit number for each 32 of the count.
    Bits(&'static str),
    /// Structs of this name.
    Structs(&'static str, &'static str),
    /// One struct of this name.
    One(&'static str),
    /// Structs of this name that follow the argument itself.
    Following(&'static str, &'static str),
}

/// The fields of `kfd_ioctl_dbg_trap_args`'s union, by `op` (`enum kfd_dbg_trap_operations`).
const DBG_TRAP: &[&str] = &[
    "enable",
    "",
    "send_runtime_event",
    "set_exceptions_enabled",
    "launch_override",
    "launch_mode",
    "suspend_queues",
    "resume_queues",
    "set_node_address_watch",
    "clear_node_address_watch",
    "set_flags",
    "query_debug_event",
    "query_exception_info",
    "queue_snapshot",
    "device_snapshot",
];
/// The fields of `kfd_ioctl_profiler_args`'s union, by `op` (`enum kfd_profiler_ops`).
const PROFILER: &[&str] = &["pmc", "", "version", "ptl"];

/// The rule of a field, from the struct's name (without `kfd_ioctl_` and `_args`) and its own.
pub fn style(owner: &str, field: &str) -> Style {
    match (owner, field) {
        (_, "pad" | "reserved" | "reserved1") => Style::Padding,
        (_, "queue_type") => Style::Name("KFD_IOC_QUEUE_TYPE_"),
        ("create_event", "event_type") => Style::Name("KFD_IOC_EVENT_"),
        ("wait_events", "wait_result") => Style::Name("KFD_IOC_WAIT_RESULT_"),
        ("set_memory_policy", "default_policy" | "alternate_policy") => {
            Style::Name("KFD_IOC_CACHE_POLICY_")
        }
        ("set_memory_policy", "misc_process_flag") => Style::Flags("KFD_PROC_FLAG_"),
        ("alloc_memory_of_gpu" | "get_dmabuf_info", "flags") | (_, "alloc_flags") => {
            Style::Flags("KFD_IOC_ALLOC_MEM_FLAGS_")
        }
        ("export_dmabuf", "flags") => Style::Hex,
        ("svm", "op") => Style::Name("KFD_IOCTL_SVM_OP_"),
        ("svm_attribute", "type") => Style::Name("KFD_IOCTL_SVM_ATTR_"),
        ("svm_attribute", "value") => Style::SvmValue,
        ("set_xnack_mode", _) => Style::Signed,
        ("criu", "op") => Style::Name("KFD_CRIU_OP_"),
        ("runtime_enable", "mode_mask") => Style::Flags("KFD_RUNTIME_ENABLE_MODE_"),
        ("runtime_info", "runtime_state") => Style::Name("DEBUG_RUNTIME_STATE_"),
        ("dbg_trap", "op") => Style::Name("KFD_IOC_DBG_TRAP_"),
        ("dbg_trap", "") => Style::Union(DBG_TRAP),
        ("profiler", "op") => Style::Name("KFD_IOC_PROFILER_"),
        ("profiler", "") => Style::Union(PROFILER),
        (_, "exception_mask" | "exception_status") => Style::Exceptions,
        (_, "exception_code") => Style::Name("EC_"),
        (_, "override_mode") => Style::Name("KFD_DBG_TRAP_OVERRIDE_"),
        (_, "enable_mask" | "support_request_mask") => Style::Flags("KFD_DBG_TRAP_MASK_"),
        (_, "launch_mode") => Style::Name("KFD_DBG_TRAP_WAVE_LAUNCH_MODE_"),
        ("dbg_trap_set_node_address_watch", "mode") => {
            Style::Name("KFD_DBG_TRAP_ADDRESS_WATCH_MODE_")
        }
        ("dbg_trap_set_flags", "flags") => Style::Flags("KFD_DBG_TRAP_FLAG_"),
        ("hsa_hw_exception_data", "reset_type") => Style::Name("KFD_HW_EXCEPTION_"),
        ("hsa_memory_exception_data", "ErrorType") => Style::Name("KFD_MEM_ERR_"),
        _ if is_address(field) => Style::Hex,
        _ => Style::Decimal,
    }
}

fn is_address(field: &str) -> bool {
    let endings = [
        "address",
        "_addr",
        "_ptr",
        "_base",
        "_limit",
        "offset",
        "handle",
        "mask",
        "trigger_data",
        "addr_config",
        "r_debug",
        "capability",
    ];
    let names = ["va", "devices", "bos", "priv_data", "start_addr", "addr"];
    names.contains(&field) || endings.iter().any(|ending| field.ends_with(ending))
}

/// What lies behind a field, if it is a pointer to something of the interface.
pub fn pointee(owner: &str, field: &str) -> Option<Pointee> {
    Some(match (owner, field) {
        (_, "device_ids_array_ptr") => Pointee::Words("n_devices"),
        (_, "events_ptr") => Pointee::Structs("kfd_event_data", "num_events"),
        (_, "kfd_process_device_apertures_ptr") => {
            Pointee::Structs("kfd_process_device_apertures", "num_of_nodes")
        }
        (_, "cu_mask_ptr") => Pointee::Bits("num_cu_mask"),
        (_, "tile_config_ptr") => Pointee::Words("num_tile_configs"),
        (_, "macro_tile_config_ptr") => Pointee::Words("num_macro_tile_configs"),
        (_, "queue_array_ptr") => Pointee::Words("num_queues"),
        (_, "rinfo_ptr") => Pointee::One("kfd_runtime_info"),
        ("dbg_trap_queue_snapshot", "snapshot_buf_ptr") => {
            Pointee::Structs("kfd_queue_snapshot_entry", "num_queues")
        }
        ("dbg_trap_device_snapshot", "snapshot_buf_ptr") => {
            Pointee::Structs("kfd_dbg_device_info_entry", "num_devices")
        }
        ("criu", "devices") => Pointee::Structs("kfd_criu_device_bucket", "num_devices"),
        ("criu", "bos") => Pointee::Structs("kfd_criu_bo_bucket", "num_bos"),
        ("svm", "attrs") => Pointee::Following("kfd_ioctl_svm_attribute", "nattr"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_uapi::reflect::{constants, Kind, STRUCTS};

    /// A rule whose prefix no constant has would show every value as a bare number.
    #[test]
    fn every_rule_names_something_of_the_header() {
        for known in STRUCTS {
            let owner = super::super::decode::short(known.name);
            for field in known.fields {
                if let Style::Name(prefix) | Style::Flags(prefix) = style(owner, field.name) {
                    assert!(constants(prefix).count() > 0, "{owner}.{}", field.name);
                }
                let count = match pointee(owner, field.name) {
                    Some(Pointee::Words(count) | Pointee::Bits(count)) => count,
                    Some(Pointee::Structs(_, count) | Pointee::Following(_, count)) => count,
                    _ => continue,
                };
                assert!(
                    known.fields.iter().any(|field| field.name == count),
                    "{owner}.{count}"
                );
            }
        }
    }

    #[test]
    fn unions_have_a_choice_for_each_of_their_fields() {
        for owner in ["dbg_trap", "profiler"] {
            let known = STRUCTS
                .iter()
                .find(|known| super::super::decode::short(known.name) == owner);
            let known = known.expect("it is in the header");
            let Style::Union(choices) = style(owner, "") else {
                panic!("{owner} has a union")
            };
            let union = known.fields.iter().find_map(|field| match field.kind {
                Kind::Struct(name) if field.name.is_empty() => Some(name),
                _ => None,
            });
            let union = kfd_uapi::reflect::Struct::by_name(union.expect("a union")).expect("known");
            for field in union.fields {
                assert!(choices.contains(&field.name), "{owner}: {}", field.name);
            }
        }
    }
}
