//! Reads the tables in which `libjvm.so` describes its structures, types and constants.
//!
//! ```text
//! gHotSpotVMStructs        type name, field name, type of the field, is static, offset, address
//! gHotSpotVMTypes          type name, …, size
//! gHotSpotVMIntConstants   name, value          gHotSpotVMLongConstants   name, value
//! ```
//!
//! Each symbol is a variable with the address of an array. Further variables have the size of an array's
//! entries and the offsets of their members. An entry without a name ends an array. The tables are constants
//! of the library: they can be read as soon as the library is mapped and relocated, before the JVM starts.

use std::{collections::HashMap, fmt, path::Path};

use object::{Endianness, Object, ObjectSymbol, read::elf::ElfFile64};

use super::memory::ReadMemory;
use crate::names::debug_files;

/// Limit of the entries of one table.
const MAX_ENTRIES: usize = 20_000;
/// Limit of a name's length.
const MAX_NAME: usize = 256;
/// Limit of the size of a table's entries.
const MAX_STRIDE: u64 = 256;
/// Limit of the offset of a field and of a type's size. `JavaThread`, the largest used type, has about 2 KiB.
const MAX_OFFSET: u64 = 1 << 16;

/// A reason why a JVM cannot be described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The file cannot be opened or is not an ELF file.
    File,
    /// The library exports no such symbol.
    Symbol(&'static str),
    /// The memory of this table cannot be read, or has contents that no JVM writes.
    Table(&'static str),
    /// The tables have no such field; type and field.
    Field(&'static str, &'static str),
    /// The tables have no such type, or its size is out of range.
    Type(&'static str),
    /// The tables have no such constant.
    Constant(&'static str),
    /// This field has an offset or width that is out of range; type and field.
    Offset(&'static str, &'static str),
    /// The feature release is not supported.
    Version(u32),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::File => write!(f, "cannot read the symbols of libjvm.so"),
            LayoutError::Symbol(name) => write!(f, "libjvm.so exports no symbol {name}"),
            LayoutError::Table(name) => write!(f, "cannot read the table {name} of libjvm.so"),
            LayoutError::Field(class, field) => write!(f, "libjvm.so describes no field {class}::{field}"),
            LayoutError::Type(name) => write!(f, "libjvm.so describes no type {name}"),
            LayoutError::Constant(name) => write!(f, "libjvm.so describes no constant {name}"),
            LayoutError::Offset(class, field) => write!(f, "the offset of {class}::{field} is out of range"),
            LayoutError::Version(version) => write!(f, "JDK {version} is not supported"),
        }
    }
}

impl std::error::Error for LayoutError {}

/// The exported variables. The index of a name is its index in [`LibjvmSymbols`].
const SYMBOLS: [&str; 20] = [
    "gHotSpotVMStructs",
    "gHotSpotVMStructEntryArrayStride",
    "gHotSpotVMStructEntryTypeNameOffset",
    "gHotSpotVMStructEntryFieldNameOffset",
    "gHotSpotVMStructEntryTypeStringOffset",
    "gHotSpotVMStructEntryIsStaticOffset",
    "gHotSpotVMStructEntryOffsetOffset",
    "gHotSpotVMStructEntryAddressOffset",
    "gHotSpotVMTypes",
    "gHotSpotVMTypeEntryArrayStride",
    "gHotSpotVMTypeEntryTypeNameOffset",
    "gHotSpotVMTypeEntrySizeOffset",
    "gHotSpotVMIntConstants",
    "gHotSpotVMIntConstantEntryArrayStride",
    "gHotSpotVMIntConstantEntryNameOffset",
    "gHotSpotVMIntConstantEntryValueOffset",
    "gHotSpotVMLongConstants",
    "gHotSpotVMLongConstantEntryArrayStride",
    "gHotSpotVMLongConstantEntryNameOffset",
    "gHotSpotVMLongConstantEntryValueOffset",
];

/// File addresses of the variables that `libjvm.so` exports for debuggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibjvmSymbols([u64; SYMBOLS.len()]);

impl LibjvmSymbols {
    /// Reads the dynamic symbols of a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not a HotSpot JVM.
    pub fn read(path: &Path) -> Result<LibjvmSymbols, LayoutError> {
        let map = debug_files::map(path).ok_or(LayoutError::File)?;
        let elf = ElfFile64::<Endianness>::parse(&map[..]).map_err(|_| LayoutError::File)?;
        let mut found = [0; SYMBOLS.len()];
        for symbol in elf.dynamic_symbols().filter(|symbol| !symbol.is_undefined()) {
            let name = symbol.name().unwrap_or_default();
            if let Some(at) = SYMBOLS.iter().position(|known| *known == name) {
                found[at] = symbol.address();
            }
        }
        match found.iter().position(|address| *address == 0) {
            Some(missing) => Err(LayoutError::Symbol(SYMBOLS[missing])),
            None => Ok(LibjvmSymbols(found)),
        }
    }
}

/// A table's location in the process.
struct Table {
    name: &'static str,
    start: u64,
    stride: u64,
    /// Offsets of the members of an entry.
    members: Vec<u64>,
}

impl Table {
    /// Reads the variable with index `first` in [`SYMBOLS`], and the `members` + 1 variables after it.
    fn read(
        memory: &impl ReadMemory,
        symbols: &LibjvmSymbols,
        bias: u64,
        first: usize,
        members: usize,
    ) -> Result<Table, LayoutError> {
        let name = SYMBOLS[first];
        let variable =
            |at: usize| memory.u64(bias.wrapping_add(symbols.0[at])).ok_or(LayoutError::Table(name));
        let stride = variable(first + 1)?;
        let members = (first + 2..first + 2 + members).map(variable).collect::<Result<Vec<_>, _>>()?;
        let inside = members.iter().all(|member| member.checked_add(8).is_some_and(|end| end <= stride));
        if !inside || stride > MAX_STRIDE {
            return Err(LayoutError::Table(name));
        }
        Ok(Table { name, start: variable(first)?, stride, members })
    }

    /// Calls `entry` with the members of each entry, until the first member is 0.
    fn for_each(
        &self,
        memory: &impl ReadMemory,
        mut entry: impl FnMut(&[u64]) -> Option<()>,
    ) -> Result<(), LayoutError> {
        let error = || LayoutError::Table(self.name);
        let stride = usize::try_from(self.stride).map_err(|_| error())?;
        let mut values = Vec::with_capacity(self.members.len());
        for i in 0..MAX_ENTRIES {
            let at = self.start.checked_add(i as u64 * self.stride).ok_or_else(error)?;
            let bytes = memory.bytes(at, stride).ok_or_else(error)?;
            values.clear();
            values.extend(self.members.iter().map(|member| {
                let found = bytes.get(*member as usize..).and_then(|rest| rest.first_chunk::<8>());
                found.map_or(0, |word| u64::from_le_bytes(*word))
            }));
            if values.first() == Some(&0) {
                return Ok(());
            }
            entry(&values).ok_or_else(error)?;
        }
        Err(error())
    }
}

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    is_static: bool,
    offset: u64,
    /// The address, for a static field.
    address: u64,
    /// The size of the field's type; `None` for types that the tables do not describe.
    size: Option<u64>,
}

/// A field that contains a number: its offset in the structure and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The offset.
    pub offset: u32,
    /// 1, 2, 4 or 8.
    pub width: u8,
}

impl Field {
    /// Returns the field's value in a structure of which `bytes` is a copy.
    pub fn unsigned(self, bytes: &[u8]) -> Option<u64> {
        let from = self.offset as usize;
        let found = bytes.get(from..from.checked_add(usize::from(self.width))?)?;
        Some(found.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Returns the field's value, sign-extended.
    pub fn signed(self, bytes: &[u8]) -> Option<i64> {
        let unused = 64 - 8 * u32::from(self.width.clamp(1, 8));
        self.unsigned(bytes).map(|value| (value << unused) as i64 >> unused)
    }
}

/// The contents of the four tables.
#[derive(Default)]
pub(super) struct VmStructs {
    fields: HashMap<(String, String), Entry>,
    types: HashMap<String, u64>,
    constants: HashMap<String, u64>,
}

impl VmStructs {
    /// Reads the tables of a process; `bias` is the address of the library minus its file address.
    pub fn read(
        memory: &impl ReadMemory,
        symbols: &LibjvmSymbols,
        bias: u64,
    ) -> Result<VmStructs, LayoutError> {
        let mut found = VmStructs::default();
        let text = |at: u64| memory.c_string(at, MAX_NAME);
        Table::read(memory, symbols, bias, 8, 2)?.for_each(memory, |entry| {
            found.types.insert(text(entry[0])?, entry[1]);
            Some(())
        })?;
        Table::read(memory, symbols, bias, 0, 6)?.for_each(memory, |entry| {
            let [class, name, kind, is_static, offset, address] = *entry.first_chunk::<6>()?;
            let size = (kind != 0).then(|| text(kind)).flatten().and_then(|kind| found.field_size(&kind));
            // The flag is an int.
            let entry = Entry { is_static: is_static as u32 != 0, offset, address, size };
            found.fields.insert((text(class)?, text(name)?), entry);
            Some(())
        })?;
        Table::read(memory, symbols, bias, 12, 2)?.for_each(memory, |entry| {
            // The value is an int.
            found.constants.insert(text(entry[0])?, u64::from(entry[1] as u32));
            Some(())
        })?;
        Table::read(memory, symbols, bias, 16, 2)?.for_each(memory, |entry| {
            found.constants.insert(text(entry[0])?, entry[1]);
            Some(())
        })?;
        Ok(found)
    }

    /// Returns the size of a field's type. Not all types of fields are described as types.
    fn field_size(&self, kind: &str) -> Option<u64> {
        match kind {
            _ if kind.ends_with('*') => Some(8),
            "address" | "intptr_t" | "uintptr_t" | "size_t" | "int64_t" | "uint64_t" => Some(8),
            "int" | "unsigned int" | "int32_t" | "uint32_t" => Some(4),
            "int16_t" | "uint16_t" | "unsigned short" => Some(2),
            "bool" | "char" | "int8_t" | "uint8_t" => Some(1),
            _ => self.types.get(kind).copied().filter(|size| *size != 0),
        }
    }

    /// Returns true if the tables describe this field.
    pub fn has(&self, class: &str, field: &str) -> bool {
        self.entry(class, field).is_some()
    }

    fn entry(&self, class: &str, field: &str) -> Option<&Entry> {
        self.fields.get(&(class.to_owned(), field.to_owned()))
    }

    /// Returns the address of a static field.
    pub fn address(&self, class: &'static str, field: &'static str) -> Result<u64, LayoutError> {
        let entry = self.entry(class, field).filter(|entry| entry.is_static);
        let address = entry.ok_or(LayoutError::Field(class, field))?.address;
        if address == 0 { Err(LayoutError::Offset(class, field)) } else { Ok(address) }
    }

    /// Returns the offset of a field.
    pub fn offset(&self, class: &'static str, field: &'static str) -> Result<u32, LayoutError> {
        let entry = self.entry(class, field).filter(|entry| !entry.is_static);
        let offset = entry.ok_or(LayoutError::Field(class, field))?.offset;
        u32::try_from(offset).ok().filter(|_| offset < MAX_OFFSET).ok_or(LayoutError::Offset(class, field))
    }

    /// Returns the offset and size of a field that contains a number or an address.
    pub fn number(&self, class: &'static str, field: &'static str) -> Result<Field, LayoutError> {
        let offset = self.offset(class, field)?;
        let size = self.entry(class, field).and_then(|entry| entry.size);
        match size {
            Some(width @ (1 | 2 | 4 | 8)) => Ok(Field { offset, width: width as u8 }),
            _ => Err(LayoutError::Offset(class, field)),
        }
    }

    /// Returns the size of a type.
    pub fn size(&self, name: &'static str) -> Result<u32, LayoutError> {
        let size = self.types.get(name).copied().filter(|size| (1..MAX_OFFSET).contains(size));
        size.and_then(|size| u32::try_from(size).ok()).ok_or(LayoutError::Type(name))
    }

    /// Returns the value of a constant.
    pub fn constant(&self, name: &'static str) -> Result<u64, LayoutError> {
        self.constants.get(name).copied().ok_or(LayoutError::Constant(name))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::names::hotspot::memory::FakeMemory;

    const VARIABLES: u64 = 0x10_0000;
    const STRINGS: u64 = 0x20_0000;
    const ARRAYS: [u64; 4] = [0x30_0000, 0x40_0000, 0x50_0000, 0x60_0000];

    /// Writes the tables of a JVM.
    #[derive(Default)]
    pub struct FakeTables {
        /// Type, field, type of the field, static, offset or address.
        pub fields: Vec<(&'static str, &'static str, &'static str, bool, u64)>,
        /// Name and size.
        pub types: Vec<(&'static str, u64)>,
        /// Name and value.
        pub constants: Vec<(&'static str, u64)>,
    }

    impl FakeTables {
        /// Returns the memory with the tables, and the symbols for a load address of 0.
        pub fn write(&self) -> (FakeMemory, LibjvmSymbols) {
            let (mut memory, mut next) = (FakeMemory::default(), STRINGS);
            let mut symbols = [0; SYMBOLS.len()];
            let mut variable = |at: usize, value: u64, memory: &mut FakeMemory| {
                symbols[at] = VARIABLES + 8 * at as u64;
                memory.set_u64(symbols[at], value);
            };
            for (at, value) in [(1, 48), (2, 0), (3, 8), (4, 16), (5, 24), (6, 32), (7, 40)] {
                variable(at, value, &mut memory);
            }
            for first in [8, 12, 16] {
                for (at, value) in [(1, 16), (2, 0), (3, 8)] {
                    variable(first + at, value, &mut memory);
                }
            }
            for (first, array) in [0, 8, 12, 16].into_iter().zip(ARRAYS) {
                variable(first, array, &mut memory);
            }
            let mut text = |text: &str, memory: &mut FakeMemory| {
                let at = next;
                memory.set_c_string(at, text);
                next += text.len() as u64 + 1;
                at
            };
            let mut arrays: [Vec<u64>; 4] = Default::default();
            for (class, field, kind, is_static, value) in &self.fields {
                let names = [class, field, kind].map(|name| text(name, &mut memory));
                let place = if *is_static { [0, *value] } else { [*value, 0] };
                arrays[0].extend(names);
                arrays[0].push(u64::from(*is_static));
                arrays[0].extend(place);
            }
            for (name, size) in &self.types {
                arrays[1].extend([text(name, &mut memory), *size]);
            }
            for (name, value) in &self.constants {
                arrays[2].extend([text(name, &mut memory), *value]);
            }
            for (at, array) in ARRAYS.into_iter().zip(arrays) {
                let words = array.into_iter().chain([0; 6]);
                memory.set(at, &words.flat_map(u64::to_le_bytes).collect::<Vec<_>>());
            }
            (memory, LibjvmSymbols(symbols))
        }
    }

    fn tables() -> FakeTables {
        FakeTables {
            fields: vec![
                ("CodeBlob", "_size", "int", false, 24),
                ("CodeBlob", "_frame_complete_offset", "int16_t", false, 54),
                ("nmethod", "_comp_level", "CompLevel", false, 216),
                ("nmethod", "_odd", "Unknown", false, 216),
                ("nmethod", "_far", "int", false, 1 << 40),
                ("CodeCache", "_heaps", "GrowableArray<CodeHeap*>*", true, 0x7000),
            ],
            types: vec![("CompLevel", 1), ("nmethod", 224), ("Empty", 0)],
            constants: vec![("InvocationEntryBci", u64::MAX)],
        }
    }

    #[test]
    fn tables_are_read() {
        let (memory, symbols) = tables().write();
        let vm = VmStructs::read(&memory, &symbols, 0).unwrap();
        assert_eq!(vm.number("CodeBlob", "_size"), Ok(Field { offset: 24, width: 4 }));
        assert_eq!(vm.number("CodeBlob", "_frame_complete_offset"), Ok(Field { offset: 54, width: 2 }));
        assert_eq!(vm.number("nmethod", "_comp_level"), Ok(Field { offset: 216, width: 1 }));
        assert_eq!(vm.number("nmethod", "_odd"), Err(LayoutError::Offset("nmethod", "_odd")));
        assert_eq!(vm.offset("nmethod", "_far"), Err(LayoutError::Offset("nmethod", "_far")));
        assert_eq!(vm.offset("nmethod", "_no"), Err(LayoutError::Field("nmethod", "_no")));
        assert_eq!(vm.offset("CodeCache", "_heaps"), Err(LayoutError::Field("CodeCache", "_heaps")));
        assert_eq!(vm.address("CodeCache", "_heaps"), Ok(0x7000));
        assert_eq!(vm.address("CodeBlob", "_size"), Err(LayoutError::Field("CodeBlob", "_size")));
        assert_eq!(vm.size("nmethod"), Ok(224));
        assert_eq!(vm.size("Empty"), Err(LayoutError::Type("Empty")));
        assert_eq!(vm.constant("InvocationEntryBci"), Ok(u64::from(u32::MAX)), "an int");
        let missing = vm.constant("none").unwrap_err().to_string();
        assert_eq!(missing, "libjvm.so describes no constant none");
    }

    #[test]
    fn damaged_tables_are_rejected() {
        let (memory, symbols) = tables().write();
        let read = |memory: &FakeMemory| VmStructs::read(memory, &symbols, 0).map(|_| ());
        let with = |at: u64, value: u64| {
            let mut memory = memory.clone();
            memory.set_u64(at, value);
            read(&memory)
        };
        assert_eq!(read(&memory), Ok(()));
        let structs = Err(LayoutError::Table("gHotSpotVMStructs"));
        assert_eq!(with(symbols.0[0], 0x1234_5678), structs, "unmapped");
        assert_eq!(with(symbols.0[1], 0), structs, "no stride");
        assert_eq!(with(symbols.0[1], u64::MAX), structs, "huge stride");
        assert_eq!(with(symbols.0[3], 41), structs, "member beyond the entry");
        assert_eq!(with(symbols.0[3], u64::MAX), structs, "member beyond memory");
        assert_eq!(with(ARRAYS[0], 0x99), structs, "name is not mapped");
        // An array without an end.
        let mut endless = memory.clone();
        let entry: Vec<u8> = [STRINGS, 1].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        endless.set(ARRAYS[2], &entry.repeat(MAX_ENTRIES + 1));
        assert_eq!(read(&endless), Err(LayoutError::Table("gHotSpotVMIntConstants")));
        // Another load address.
        assert!(VmStructs::read(&memory, &symbols, 0x1000_0000).is_err());
    }

    #[test]
    fn fields_are_sign_extended() {
        let bytes = [0xff, 0xfe, 0xff, 0x01];
        assert_eq!(Field { offset: 1, width: 2 }.signed(&bytes), Some(-2));
        assert_eq!(Field { offset: 0, width: 1 }.signed(&bytes), Some(-1));
        assert_eq!(Field { offset: 0, width: 4 }.unsigned(&bytes), Some(0x01ff_feff));
        assert_eq!(Field { offset: 1, width: 4 }.unsigned(&bytes), None);
        assert_eq!(Field { offset: u32::MAX, width: 8 }.unsigned(&bytes), None);
    }

    #[test]
    fn other_files_have_no_symbols() {
        assert_eq!(LibjvmSymbols::read(Path::new("/nowhere")), Err(LayoutError::File));
        let own = LibjvmSymbols::read(Path::new("/proc/self/exe"));
        assert_eq!(own, Err(LayoutError::Symbol("gHotSpotVMStructs")));
    }
}
