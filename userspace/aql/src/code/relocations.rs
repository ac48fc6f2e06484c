// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a code object's dynamic relocations come to at the address where it lies.

use super::{bad, Elf};
use crate::Result;
use object::{Object, ObjectSymbol, ObjectSymbolTable};
use object::{RelocationFlags, RelocationTarget, SymbolIndex, SymbolSection};

const R_AMDGPU_ABS64: u32 = 3;
const R_AMDGPU_RELATIVE64: u32 = 13;

/// The words that an object at `base` has by its relocations, and where among its bytes.
pub(super) fn relocations(elf: &Elf<'_>, base: u64) -> Result<Vec<(u64, u64)>> {
    let all = elf.dynamic_relocations().into_iter().flatten();
    all.map(|(offset, relocation)| {
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            return Err(bad("a relocation that is not ELF's"));
        };
        let target = match (r_type, relocation.target()) {
            (R_AMDGPU_RELATIVE64, _) => base,
            (R_AMDGPU_ABS64, RelocationTarget::Symbol(index)) => address(elf, index, base)?,
            _ => return Err(bad(format!("relocation type {r_type} is not supported"))),
        };
        Ok((offset, target.wrapping_add_signed(relocation.addend())))
    })
    .collect()
}

/// Where the symbol with this number among the dynamic ones lies.
fn address(elf: &Elf<'_>, index: SymbolIndex, base: u64) -> Result<u64> {
    let table = elf
        .dynamic_symbol_table()
        .ok_or_else(|| bad("a relocation by a symbol, and no dynamic symbols"))?;
    let symbol = table
        .symbol_by_index(index)
        .map_err(|error| bad(error.to_string()))?;
    match symbol.section() {
        SymbolSection::Undefined if symbol.is_weak() => Ok(0),
        SymbolSection::Undefined => {
            let name = symbol.name().unwrap_or("a symbol without a name");
            Err(bad(format!("it needs {name}, which is not in it")))
        }
        SymbolSection::Absolute => Ok(symbol.address()),
        _ => Ok(base.wrapping_add(symbol.address())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use object::elf::{
        EM_AMDGPU, SHN_ABS, SHN_UNDEF, SHT_DYNSYM, SHT_PROGBITS, SHT_RELA, SHT_STRTAB, SHT_SYMTAB,
        STB_GLOBAL, STB_LOCAL, STB_WEAK,
    };

    const HEADER: usize = 64;
    /// The section that symbols are in.
    const DATA: u16 = 1;

    /// Name, binding, section and value of a symbol.
    type Symbol = (&'static str, u8, u16, u64);

    /// A table of symbols, after the one that has nothing, and their names.
    fn table(symbols: &[Symbol]) -> (Vec<u8>, Vec<u8>) {
        let (mut table, mut names) = (vec![0; 24], vec![0]);
        for (name, binding, section, value) in symbols {
            table.extend((names.len() as u32).to_le_bytes());
            table.extend([binding << 4, 0]);
            table.extend(section.to_le_bytes());
            table.extend([value.to_le_bytes(), [0; 8]].concat());
            names.extend(name.bytes().chain([0]));
        }
        (table, names)
    }

    /// An object with these symbols, and relocations of these types, by the symbols of these
    /// numbers and with these addends, for the words from 0x100 on.
    fn file(all: Option<&[Symbol]>, dynamic: &[Symbol], wanted: &[(u32, u32, i64)]) -> Vec<u8> {
        let (dynsym, dynstr) = table(dynamic);
        let mut rela = Vec::new();
        for (at, (kind, symbol, addend)) in wanted.iter().enumerate() {
            rela.extend((0x100 + 8 * at as u64).to_le_bytes());
            rela.extend([kind.to_le_bytes(), symbol.to_le_bytes()].concat());
            rela.extend(addend.to_le_bytes());
        }
        // Type, link, bytes, size of an entry.
        let mut sections = vec![
            (0, 0, Vec::new(), 0),
            (SHT_PROGBITS, 0, vec![0; 8], 0),
            (SHT_DYNSYM, 3, dynsym, 24),
            (SHT_STRTAB, 0, dynstr, 0),
            (SHT_RELA, 2, rela, 24),
        ];
        if let Some(all) = all {
            let (symtab, strtab) = table(all);
            sections.push((SHT_SYMTAB, 6, symtab, 24));
            sections.push((SHT_STRTAB, 0, strtab, 0));
        }
        let mut ends = vec![HEADER];
        for (_, _, bytes, _) in &sections {
            ends.push(ends[ends.len() - 1] + bytes.len().next_multiple_of(8));
        }
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(16, 0);
        elf.extend([3u16, EM_AMDGPU].map(u16::to_le_bytes).concat());
        elf.extend(1u32.to_le_bytes());
        let table = ends[sections.len()] as u64;
        elf.extend([0, 0, table].map(u64::to_le_bytes).concat());
        elf.extend(0u32.to_le_bytes());
        let sizes = [HEADER as u16, 0, 0, 64, sections.len() as u16, 3];
        elf.extend(sizes.map(u16::to_le_bytes).concat());
        for (_, _, bytes, _) in &sections {
            elf.extend(bytes);
            elf.resize(elf.len().next_multiple_of(8), 0);
        }
        for ((kind, link, bytes, entry), at) in sections.iter().zip(&ends) {
            elf.extend([0, *kind].map(u32::to_le_bytes).concat());
            let words = [0, 0, *at as u64, bytes.len() as u64];
            elf.extend(words.map(u64::to_le_bytes).concat());
            elf.extend([*link, 1].map(u32::to_le_bytes).concat());
            elf.extend([8u64, *entry].map(u64::to_le_bytes).concat());
        }
        elf
    }

    fn words(file: &[u8]) -> Result<Vec<(u64, u64)>> {
        relocations(&parse(file).expect("an ELF file"), 0x10_0000)
    }

    #[test]
    fn a_symbol_is_the_dynamic_one_of_that_number() {
        let dynamic = [
            ("table", STB_GLOBAL, DATA, 0x2000),
            ("limit", STB_GLOBAL, SHN_ABS, 77),
        ];
        let local = ("hidden", STB_LOCAL, DATA, 0x3000);
        let all = [local, dynamic[0], dynamic[1]];
        let wanted = [
            (R_AMDGPU_ABS64, 1, 16),
            (R_AMDGPU_RELATIVE64, 0, 0x40),
            (R_AMDGPU_ABS64, 2, -1),
        ];
        let right = [(0x100, 0x10_2010), (0x108, 0x10_0040), (0x110, 76)];
        for symbols in [Some(&all[..]), None] {
            let words = words(&file(symbols, &dynamic, &wanted));
            assert_eq!(words.expect("all are there"), right, "{symbols:?}");
        }
    }

    #[test]
    fn what_is_nowhere_is_refused() {
        let symbols = [
            ("elsewhere", STB_GLOBAL, SHN_UNDEF, 0),
            ("maybe", STB_WEAK, SHN_UNDEF, 0),
        ];
        let error = words(&file(None, &symbols, &[(R_AMDGPU_ABS64, 1, 0)]));
        let said = error.expect_err("it is not there").to_string();
        assert!(said.contains("it needs elsewhere"), "{said}");
        let weak = words(&file(None, &symbols, &[(R_AMDGPU_ABS64, 2, 0)]));
        assert_eq!(weak.expect("it need not be there"), [(0x100, 0)]);
        assert!(words(&file(None, &symbols, &[(R_AMDGPU_ABS64, 3, 0)])).is_err());
        assert!(words(&file(None, &symbols, &[(6, 1, 0)])).is_err());
    }
}
