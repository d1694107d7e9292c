//! Finds the definitions of a function in the source code, from a file's debug information.

use gimli::{
    AttributeValue, DW_AT_abstract_origin, DW_AT_decl_file, DW_AT_decl_line, DW_AT_declaration,
    DW_AT_linkage_name, DW_AT_name, DW_AT_specification, DW_TAG_subprogram, DebuggingInformationEntry, Dwarf,
    EndianSlice, LittleEndian, Unit,
};
use std::path::PathBuf;

use crate::names::demangle::demangle;

/// Limit of definitions returned for one name.
const MOST: usize = 16;
/// Suffixes that compilers append to the names of modified copies of a function.
const COPIES: [&str; 7] = [".isra.", ".constprop.", ".part.", ".cold", ".lto_priv.", ".llvm.", " [clone"];

type Slice = EndianSlice<'static, LittleEndian>;

/// The definition of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Path of the source file as the compiler recorded it; relative if the compiler did not record its directory.
    pub file: PathBuf,
    /// Line of the definition, from 1.
    pub line: u32,
}

/// Returns the definitions of the functions with this demangled name, at most 16, each place once.
///
/// Reads the whole debug information. A damaged unit ends the search in this unit only.
pub(super) fn find(dwarf: &Dwarf<Slice>, name: &str) -> Vec<Declaration> {
    let mut search = Search { dwarf, name, original: original(name), declarations: Vec::new() };
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if let Ok(unit) = dwarf.unit(header) {
            // A damaged unit must not hide the others.
            let _ = search.unit(&unit);
        }
        if search.declarations.len() >= MOST {
            break;
        }
    }
    search.declarations
}

/// Returns the name of the function from which the compiler made a copy.
fn original(name: &str) -> &str {
    let end = COPIES.iter().filter_map(|suffix| name.find(suffix)).min();
    end.map_or(name, |end| &name[..end])
}

struct Search<'a> {
    dwarf: &'a Dwarf<Slice>,
    name: &'a str,
    original: &'a str,
    declarations: Vec<Declaration>,
}

impl Search<'_> {
    fn unit(&mut self, unit: &Unit<Slice>) -> gimli::Result<()> {
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            // A copy refers to an entry that is visited as well.
            if entry.tag() != DW_TAG_subprogram
                || entry.attr_value(DW_AT_declaration).is_some()
                || entry.attr_value(DW_AT_abstract_origin).is_some()
            {
                continue;
            }
            // The definition of a member function refers to the declaration in its type, which carries the
            // name.
            let declared = match entry.attr_value(DW_AT_specification) {
                Some(AttributeValue::UnitRef(offset)) => unit.entry(offset).ok(),
                _ => None,
            };
            if !self.is_named(unit, entry) && !declared.as_ref().is_some_and(|of| self.is_named(unit, of)) {
                continue;
            }
            let place = place(self.dwarf, unit, entry, declared.as_ref());
            if let Some(place) = place.filter(|place| !self.declarations.contains(place)) {
                self.declarations.push(place);
                if self.declarations.len() >= MOST {
                    break;
                }
            }
        }
        Ok(())
    }

    fn is_named(&self, unit: &Unit<Slice>, entry: &DebuggingInformationEntry<Slice>) -> bool {
        [DW_AT_linkage_name, DW_AT_name].into_iter().any(|at| {
            let text = entry.attr_value(at).and_then(|value| self.dwarf.attr_string(unit, value).ok());
            text.is_some_and(|text| {
                let name = demangle(text.slice()).text;
                name == self.name || name == self.original
            })
        })
    }
}

/// Returns file and line of a definition. Missing parts come from the declaration.
fn place(
    dwarf: &Dwarf<Slice>,
    unit: &Unit<Slice>,
    entry: &DebuggingInformationEntry<Slice>,
    declared: Option<&DebuggingInformationEntry<Slice>>,
) -> Option<Declaration> {
    let value = |at| entry.attr_value(at).or_else(|| declared?.attr_value(at));
    let line = u32::try_from(value(DW_AT_decl_line)?.udata_value()?).ok().filter(|line| *line > 0)?;
    let index = match value(DW_AT_decl_file)? {
        AttributeValue::FileIndex(index) => index,
        other => other.udata_value()?,
    };
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let text = |value| {
        let text = dwarf.attr_string(unit, value).ok()?;
        Some(String::from_utf8_lossy(text.slice()).into_owned())
    };
    let mut path = PathBuf::new();
    if let Some(dir) = &unit.comp_dir {
        path.push(&*String::from_utf8_lossy(dir.slice()));
    }
    // Directory 0 is the compilation directory.
    if file.directory_index() != 0
        && let Some(dir) = file.directory(header)
    {
        path.push(text(dir)?);
    }
    path.push(text(file.path_name())?);
    Some(Declaration { file: path, line })
}

#[cfg(test)]
mod tests {
    use super::original;

    #[test]
    fn copies_are_named_after_their_original() {
        for (name, of) in [
            ("f", "f"),
            ("main.run", "main.run"),
            ("f.constprop.0", "f"),
            ("f.part.0.cold", "f"),
            ("f.cold", "f"),
            ("ns::f(int) [clone .isra.0]", "ns::f(int)"),
        ] {
            assert_eq!(original(name), of);
        }
    }
}
