//! Names, modifiers and lines of a method.
//!
//! ```text
//! Method → ConstMethod → ConstantPool → InstanceKlass → Symbol (the class's name)
//!            │             └ entries → Symbols (name and descriptor)
//!            └ bytecodes, line number table
//! ```

use std::sync::Arc;

use super::Unresolved;
use super::layout::MethodLayout;
use super::line_table::{self, LineStart};
use super::memory::ReadMemory;

/// The flags of a class file's method, as the JDK writes them to recordings.
const WRITTEN_FLAGS: u64 = 0x7fff;
/// The flag of native methods.
const NATIVE: u16 = 0x100;
/// Limit of a `ConstMethod` with its bytecodes and tables, bytes.
const MAX_CONST_METHOD: u64 = 4 << 20;

/// A method.
#[derive(Debug, PartialEq, Eq)]
pub struct JavaMethod {
    /// The class's name with slashes: `java/util/HashMap`. Hidden classes have no address in it.
    pub class: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The descriptor: `(ILjava/lang/String;)V`.
    pub descriptor: Arc<str>,
    /// Access flags of the class file.
    pub modifiers: u16,
    lines: Box<[LineStart]>,
}

/// The parts of a method by which another method at the same address is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodIdentity {
    const_method: u64,
    constants: u64,
    /// The size of the `ConstMethod` and of the bytecodes, bytes.
    size: u64,
    code_size: u16,
    name_index: u16,
    signature_index: u16,
    modifiers: u16,
    has_line_numbers: bool,
}

impl MethodIdentity {
    /// Reads the identity of the `Method` at `address`.
    pub fn read(memory: &impl ReadMemory, layout: &MethodLayout, address: u64) -> Result<Self, Unresolved> {
        MethodIdentity::parse(memory, layout, address).ok_or(Unresolved::Unreadable)
    }

    fn parse(memory: &impl ReadMemory, layout: &MethodLayout, address: u64) -> Option<Self> {
        let is_pointer = |value: &u64| *value != 0 && value.is_multiple_of(8);
        let method = memory.bytes(Some(address).filter(is_pointer)?, layout.type_size as usize)?;
        let pointer = |bytes: &[u8], offset: u32| {
            let found = bytes.get(offset as usize..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*found)).filter(is_pointer)
        };
        let const_method = pointer(&method, layout.const_method)?;
        let parts = &layout.constant;
        let bytes = memory.bytes(const_method, parts.type_size as usize)?;
        let number = |field: super::vm_structs::Field| u16::try_from(field.unsigned(&bytes)?).ok();
        let code_size = number(parts.code_size)?;
        let size = 8 * parts.size.unsigned(&bytes).filter(|words| *words <= MAX_CONST_METHOD / 8)?;
        let has_line_numbers = parts.flags.unsigned(&bytes)? & u64::from(parts.has_line_numbers) != 0;
        (size >= u64::from(parts.type_size) + u64::from(code_size)).then_some(MethodIdentity {
            const_method,
            constants: pointer(&bytes, parts.constants)?,
            size,
            code_size,
            name_index: number(parts.name_index)?,
            signature_index: number(parts.signature_index)?,
            modifiers: (layout.access_flags.unsigned(&method)? & WRITTEN_FLAGS) as u16,
            has_line_numbers,
        })
    }

    /// Returns the bytecode index of an address in the bytecodes.
    pub fn bci(&self, layout: &MethodLayout, bcp: u64) -> Option<u16> {
        let code = self.const_method.checked_add(u64::from(layout.constant.type_size))?;
        let bci = u16::try_from(bcp.checked_sub(code)?).ok()?;
        (bci < self.code_size).then_some(bci)
    }
}

impl JavaMethod {
    /// Reads the method with this identity.
    pub fn read(
        memory: &impl ReadMemory,
        layout: &MethodLayout,
        identity: &MethodIdentity,
    ) -> Result<JavaMethod, Unresolved> {
        JavaMethod::parse(memory, layout, identity).ok_or(Unresolved::Unreadable)
    }

    fn parse(
        memory: &impl ReadMemory,
        layout: &MethodLayout,
        identity: &MethodIdentity,
    ) -> Option<JavaMethod> {
        let pool = identity.constants;
        let at = |offset: u32| pool.checked_add(u64::from(offset));
        let length = memory.u32(at(layout.pool_length)?)?;
        let entry = |index: u16| {
            let inside = index != 0 && u32::from(index) < length;
            let entry = at(layout.pool_size)?.checked_add(8 * u64::from(index))?;
            memory.u64(Some(entry).filter(|_| inside)?)
        };
        let holder = memory.u64(at(layout.pool_holder)?)?;
        let class = memory.u64(holder.checked_add(u64::from(layout.klass_name))?)?;
        let class = symbol(memory, layout, class)?;
        let name = symbol(memory, layout, entry(identity.name_index)?)?;
        let descriptor = symbol(memory, layout, entry(identity.signature_index)?)?;
        if !is_class_name(&class) || !is_method_name(&name) || !is_descriptor(&descriptor) {
            return None;
        }
        Some(JavaMethod {
            class: stable_class_name(&class).into(),
            name: name.into(),
            descriptor: descriptor.into(),
            modifiers: identity.modifiers,
            lines: lines(memory, layout, identity).unwrap_or_default(),
        })
    }

    /// Returns the source line of a bytecode; 0 if it is unknown.
    pub fn line(&self, bci: u16) -> u32 {
        line_table::find(&self.lines, bci)
    }

    /// Returns true for a native method.
    pub fn is_native(&self) -> bool {
        self.modifiers & NATIVE != 0
    }

    /// Returns the memory in use, bytes.
    pub fn memory(&self) -> usize {
        let text = self.class.len() + self.name.len() + self.descriptor.len();
        size_of::<JavaMethod>() + text + size_of_val(&*self.lines) + 64
    }
}

/// Reads the line number table, which follows the bytecodes.
fn lines(
    memory: &impl ReadMemory,
    layout: &MethodLayout,
    identity: &MethodIdentity,
) -> Option<Box<[LineStart]>> {
    if !identity.has_line_numbers {
        return None;
    }
    let from = u64::from(layout.constant.type_size) + u64::from(identity.code_size);
    let len = usize::try_from(identity.size.checked_sub(from)?).ok()?;
    let bytes = memory.bytes(identity.const_method.checked_add(from)?, len)?;
    Some(line_table::decode(&bytes, layout.without_zero_bytes))
}

/// Reads a `Symbol`. `None` if it is not valid in a class file.
fn symbol(memory: &impl ReadMemory, layout: &MethodLayout, address: u64) -> Option<String> {
    if address == 0 {
        return None;
    }
    let len = memory.u16(address.checked_add(u64::from(layout.symbol_length))?)?;
    let bytes = memory.bytes(address.checked_add(u64::from(layout.symbol_body))?, usize::from(len))?;
    decode_modified_utf8(&bytes)
}

/// Decodes the encoding of class files: UTF-16 units of one to three bytes each, and no zero byte.
fn decode_modified_utf8(bytes: &[u8]) -> Option<String> {
    if bytes.is_ascii() {
        return (!bytes.contains(&0)).then(|| String::from_utf8_lossy(bytes).into_owned());
    }
    let (mut units, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    let low = |byte: &u8| (byte & 0xc0 == 0x80).then_some(u16::from(byte & 0x3f));
    while let Some((first, after)) = rest.split_first() {
        let first16 = u16::from(*first);
        let (unit, len) = match first {
            1..=0x7f => (first16, 0),
            0xc0..=0xdf => ((first16 & 0x1f) << 6 | low(after.first()?)?, 1),
            0xe0..=0xef => ((first16 & 0xf) << 12 | low(after.first()?)? << 6 | low(after.get(1)?)?, 2),
            _ => return None,
        };
        units.push(unit);
        rest = after.get(len..)?;
    }
    Some(String::from_utf16_lossy(&units))
}

fn is_class_name(name: &str) -> bool {
    !name.is_empty() && !name.contains([';', '['])
}

fn is_method_name(name: &str) -> bool {
    let special = name == "<init>" || name == "<clinit>";
    special || (!name.is_empty() && !name.contains(['.', ';', '[', '/', '<', '>']))
}

fn is_descriptor(descriptor: &str) -> bool {
    descriptor
        .strip_prefix('(')
        .and_then(|rest| rest.rsplit_once(')'))
        .is_some_and(|(_, kind)| !kind.is_empty())
}

/// Removes what differs from run to run from the name of a hidden class: its address, and the number of a
/// lambda's class.
fn stable_class_name(name: &str) -> &str {
    const LAMBDA: &str = "$$Lambda";
    let address = name.rfind("0x").filter(|at| {
        let digits = &name[at + 2..];
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit())
    });
    let name = match address.map(|at| &name[..at]) {
        Some(before) => before.strip_suffix(['+', '/']).unwrap_or(name),
        None => name,
    };
    match name.rfind(LAMBDA).map(|at| (at + LAMBDA.len(), &name[at + LAMBDA.len()..])) {
        Some((end, number)) if is_number_suffix(number) => &name[..end],
        _ => name,
    }
}

/// Returns true for `$` and decimal digits.
fn is_number_suffix(text: &str) -> bool {
    let digits = text.strip_prefix('$').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_classes_have_stable_names() {
        for (name, stable) in [
            ("App$$Lambda$14+0x0000000800c03000", "App$$Lambda"),
            ("App$$Lambda+0x00007f1234567890", "App$$Lambda"),
            ("App$$Lambda/0x00007f1234567890", "App$$Lambda"),
            ("App$$Lambda$7", "App$$Lambda"),
            ("java/lang/invoke/LambdaForm$MH+0x0000000800c03000", "java/lang/invoke/LambdaForm$MH"),
            ("java/util/HashMap$Node", "java/util/HashMap$Node"),
            ("App$1", "App$1"),
            ("App$$Lambda$x", "App$$Lambda$x"),
            ("App0x12", "App0x12"),
            ("App+0x", "App+0x"),
            ("App+0x12g", "App+0x12g"),
        ] {
            assert_eq!(stable_class_name(name), stable);
        }
    }

    #[test]
    fn modified_utf8_is_decoded() {
        let decode = |bytes: &[u8]| decode_modified_utf8(bytes);
        assert_eq!(decode(b"abc").as_deref(), Some("abc"));
        assert_eq!(decode("größe".as_bytes()).as_deref(), Some("größe"));
        assert_eq!(decode(&[0xc0, 0x80]).as_deref(), Some("\0"));
        // U+1F600 as a pair of surrogates.
        assert_eq!(decode(&[0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80]).as_deref(), Some("\u{1f600}"));
        for invalid in
            [&[b'a', 0][..], &[0xc3], &[0xe0, 0x80], &[0xf0, 0x9f, 0x98, 0x80], &[0x80], &[0xc3, b'x']]
        {
            assert_eq!(decode(invalid), None, "{invalid:x?}");
        }
    }

    #[test]
    fn implausible_names_are_rejected() {
        assert!(is_method_name("<init>") && is_method_name("lambda$main$0") && is_method_name("a-b"));
        assert!(!is_method_name("") && !is_method_name("<x>") && !is_method_name("a/b"));
        assert!(is_descriptor("()V") && is_descriptor("(I[Ljava/lang/String;)J"));
        assert!(!is_descriptor("V") && !is_descriptor("(I") && !is_descriptor("(I)"));
        assert!(is_class_name("A") && !is_class_name("") && !is_class_name("[I") && !is_class_name("La;"));
    }
}
