//! Converts aggregated stacks to a pprof profile and back.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};

use flate2::read::MultiGzDecoder;
use flightline_consumer::tree::Tree;
use prost::Message;
use regex::RegexBuilder;

use super::labels::Choice;
use super::proto::{Function, Line, Location, Mapping, Profile, Sample, ValueType};

/// Maximum size of a decompressed profile.
const MOST: u64 = 512 << 20;

/// Converts a tree to a profile with one value.
pub fn from_tree(tree: &Tree) -> Profile {
    let mut profile = Profile { string_table: vec![String::new()], ..Profile::default() };
    let mut known: HashMap<String, i64> = HashMap::from([(String::new(), 0)]);
    let mut text = |profile: &mut Profile, text: &str| -> i64 {
        *known.entry(text.to_owned()).or_insert_with(|| {
            profile.string_table.push(text.to_owned());
            profile.string_table.len() as i64 - 1
        })
    };
    let (kind, unit) = match tree.unit.as_str() {
        "ns" => ("time", "nanoseconds"),
        "bytes" => ("space", "bytes"),
        "samples" => ("samples", "count"),
        other => (other, "count"),
    };
    let value_type = ValueType { r#type: text(&mut profile, kind), unit: text(&mut profile, unit) };
    profile.sample_type.push(value_type);
    profile.default_sample_type = value_type.r#type;
    let mut mappings: HashMap<i64, u64> = HashMap::new();
    for (id, label) in (1..).zip(&tree.labels) {
        let name = text(&mut profile, &label.text);
        profile.function.push(Function { id, name, system_name: name, ..Function::default() });
        let filename = label.module.as_deref().map(|module| text(&mut profile, module));
        let mapping_id = filename.map_or(0, |filename| {
            let next = profile.mapping.len() as u64 + 1;
            *mappings.entry(filename).or_insert_with(|| {
                profile.mapping.push(Mapping { id: next, filename, has_functions: true });
                next
            })
        });
        profile.location.push(Location {
            id,
            mapping_id,
            address: 0,
            line: vec![Line { function_id: id, line: 0 }],
        });
    }
    let mut stacks = tree.stacks();
    while let Some((path, weight)) = stacks.next() {
        let location_id = path.iter().rev().map(|label| label.index() as u64 + 1).collect();
        let value = vec![i64::try_from(weight).unwrap_or(i64::MAX)];
        profile.sample.push(Sample { location_id, value, label: Vec::new() });
    }
    profile
}

/// The result of converting a profile to folded text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The unit of the values.
    pub unit: String,
    /// Samples that had all requested labels.
    pub samples: u64,
    /// Some of the labels in the profile: as `KEY=VALUE` if a label has a requested name, else the names
    /// only.
    pub there: Vec<String>,
    /// Samples with a negative value, which are left out. pprof's `-base` writes them into differences.
    pub negative: u64,
}

/// Writes the default value, or else the last value, of a gzipped profile as folded text, and returns the
/// unit. Inlined functions are frames.
///
/// # Errors
/// The bytes are not a gzipped profile, or `out` cannot be written.
pub fn folded(packed: impl Read, out: &mut impl Write) -> io::Result<String> {
    write_folded(&unpacked(packed)?, out)
}

/// Decompresses a gzipped profile.
///
/// # Errors
/// The bytes are not gzipped, or too many.
pub fn unpacked(packed: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(packed).take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(invalid("it is larger than 512 MB"));
    }
    Ok(bytes)
}

/// Like [`folded`], for a profile that is not compressed. Memory is proportional to the size of the
/// profile; the text may be larger, because a profile can refer to one name many times.
///
/// # Errors
/// The bytes are not a profile, or `out` cannot be written.
pub fn write_folded(bytes: &[u8], out: &mut impl Write) -> io::Result<String> {
    selected(bytes, &Selection::default(), out).map(|chosen| chosen.unit)
}

/// Selects values and samples of a profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// Names of sample types, such as `alloc_space`. The profile's first type with one of these names is
    /// read. If empty, the default type is read.
    pub types: &'a [String],
    /// Names and values of labels that a sample must have; numbers are in decimal.
    pub labels: &'a [(String, String)],
}

/// Writes the selected values and samples as folded text, like [`write_folded`].
///
/// # Errors
/// As for [`write_folded`], or the profile has none of the types.
pub fn selected(bytes: &[u8], selection: &Selection<'_>, out: &mut impl Write) -> io::Result<Chosen> {
    let profile = Profile::decode(bytes).map_err(|error| invalid(&error.to_string()))?;
    if profile.sample_type.is_empty() || profile.string_table.first().is_none_or(|first| !first.is_empty()) {
        return Err(invalid("it has no value, or no table of texts"));
    }
    let text = |index: i64| -> &str {
        let at = usize::try_from(index).ok();
        at.and_then(|at| profile.string_table.get(at)).map_or("", String::as_str)
    };
    let default = profile
        .sample_type
        .iter()
        .position(|of| of.r#type == profile.default_sample_type && profile.default_sample_type != 0);
    let name_of = |of: &ValueType| text(of.r#type);
    let value = match selection.types {
        [] => default.unwrap_or(profile.sample_type.len() - 1),
        types => {
            let has = |of: &ValueType| types.iter().any(|name| name == name_of(of));
            profile.sample_type.iter().position(has).ok_or_else(|| {
                let present: Vec<&str> = profile.sample_type.iter().map(name_of).collect();
                let (names, present) = (types.join(", "), present.join(", "));
                io::Error::new(
                    io::ErrorKind::NotFound,
                    format!("the profile has no type {names}; it has {present}"),
                )
            })?
        }
    };
    // A profile without demangled names may have the mangled ones.
    let name = |function: &Function| match text(function.name) {
        "" => text(function.system_name),
        name => name,
    };
    let names: HashMap<u64, &str> =
        profile.function.iter().map(|function| (function.id, name(function))).collect();
    let dropped = dropped(&names, text(profile.drop_frames), text(profile.keep_frames))?;
    let locations: HashMap<u64, &Location> =
        profile.location.iter().map(|location| (location.id, location)).collect();
    let mut choice = Choice::new(selection.labels);
    let mut negative = 0;
    for sample in &profile.sample {
        let weight = sample.value.get(value).copied().unwrap_or(0);
        negative += u64::from(weight < 0);
        if weight <= 0 || !choice.takes(sample, text) {
            continue;
        }
        let mut any = false;
        let mut put = |name: &str| -> io::Result<()> {
            if std::mem::replace(&mut any, true) {
                out.write_all(b";")?;
            }
            out.write_all(flightline_consumer::folded::clean(name).as_bytes())
        };
        // Leaf first, like the samples' locations.
        let mut is_kept = false;
        for location in sample.location_id.iter().rev().filter_map(|id| locations.get(id)) {
            // The callers' lines come last. The callees of a dropped function are dropped too.
            let callers = location.line.iter().rposition(|line| dropped.contains(&line.function_id));
            let callers = callers.map_or(&location.line[..], |at| &location.line[at + 1..]);
            let is_whole = callers.len() == location.line.len();
            // As in pprof: frames before the first retained frame are not dropped, as otherwise the whole
            // stack might be.
            if callers.is_empty() && !is_whole && is_kept {
                break;
            }
            is_kept |= is_whole;
            let lines = if callers.is_empty() { &location.line[..] } else { callers };
            let mut named = false;
            let functions = lines.iter().rev().filter_map(|line| names.get(&line.function_id));
            for name in functions.filter(|name| !name.is_empty()) {
                put(name)?;
                named = true;
            }
            if !is_whole && is_kept {
                break;
            }
            if !named {
                put(&format!("0x{:x}", location.address))?;
            }
        }
        writeln!(out, "{} {weight}", if any { "" } else { flightline_consumer::fold::NO_STACK })?;
    }
    let (samples, there) = choice.finish();
    let unit = tree_unit(text(profile.sample_type[value].r#type), text(profile.sample_type[value].unit));
    Ok(Chosen { unit: unit.to_owned(), samples, there, negative })
}

/// Converts a sample type and unit to a tree's unit. The unit of a counted type is its name:
/// `contentions`.
pub(crate) fn tree_unit<'a>(kind: &'a str, unit: &'a str) -> &'a str {
    match (kind, unit) {
        (_, "nanoseconds") => "ns",
        ("" | "sample" | "samples", "count" | "") => "samples",
        (kind, "count" | "") => kind,
        (_, unit) => unit,
    }
}

/// Maximum size of a compiled regular expression.
const MOST_REGEX: usize = 1 << 20;

/// Returns the functions that `drop_frames` matches completely and `keep_frames` does not
/// (profile.proto).
fn dropped(names: &HashMap<u64, &str>, drop: &str, keep: &str) -> io::Result<HashSet<u64>> {
    if drop.is_empty() {
        return Ok(HashSet::new());
    }
    let whole = |pattern: &str| {
        let regex = RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(MOST_REGEX).build();
        regex.map_err(|error| invalid(&format!("drop_frames or keep_frames: {error}")))
    };
    let (drop, keep) = (whole(drop)?, if keep.is_empty() { None } else { Some(whole(keep)?) });
    let is = |name: &str| {
        let name = plain(name);
        drop.is_match(name) && keep.as_ref().is_none_or(|keep| !keep.is_match(name))
    };
    Ok(names.iter().filter(|(_, name)| is(name)).map(|(id, _)| *id).collect())
}

/// Removes the arguments of a name before it is compared, as pprof does.
fn plain(name: &str) -> &str {
    const NAMES: [&str; 2] = ["(anonymous namespace)", "operator()"];
    let is_name = |at: usize| {
        NAMES.iter().any(|part| {
            let start = at.checked_sub(part.find('(').unwrap_or(0));
            start.and_then(|start| name.get(start..)).is_some_and(|rest| rest.starts_with(part))
        })
    };
    let arguments = name.match_indices('(').map(|(at, _)| at).find(|&at| !is_name(at));
    arguments.filter(|&at| at > 0).map_or(name, |at| &name[..at])
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a pprof profile: {what}"))
}

#[cfg(test)]
mod tests {
    use flightline_consumer::folded as folded_text;

    use super::*;

    #[test]
    fn tree_round_trips_through_pprof() {
        let text = "main;f(int);g 3\nmain;h 4\n";
        let mut tree = folded_text::read(text.as_bytes()).unwrap();
        tree.unit = "ns".into();
        let mut packed = Vec::new();
        super::super::write(&from_tree(&tree), &mut packed).unwrap();
        let mut out = Vec::new();
        assert_eq!(folded(packed.as_slice(), &mut out).unwrap(), "ns");
        let again = folded_text::read(out.as_slice()).unwrap();
        let mut out = Vec::new();
        folded_text::write(&again, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), text);
        let mut again = Vec::new();
        assert_eq!(write_folded(&from_tree(&tree).encode_to_vec(), &mut again).unwrap(), "ns");
        assert_eq!(String::from_utf8(again).unwrap(), text);
        for cut in 0..packed.len() {
            assert!(folded(&packed[..cut], &mut Vec::new()).is_err(), "{cut}");
        }
    }

    fn folded_text(profile: &Profile) -> (String, Chosen) {
        let mut out = Vec::new();
        let chosen = selected(&profile.encode_to_vec(), &Selection::default(), &mut out).unwrap();
        (String::from_utf8(out).unwrap(), chosen)
    }

    #[test]
    fn system_name_is_used_without_function_name() {
        let mut profile = from_tree(&folded_text::read("main;f 3\n".as_bytes()).unwrap());
        profile.function.iter_mut().for_each(|function| function.name = 0);
        assert_eq!(folded_text(&profile).0, "main;f 3\n");
    }

    #[test]
    fn negative_values_are_skipped_and_counted() {
        let mut profile = from_tree(&folded_text::read("main;f 3\nmain;g 4\n".as_bytes()).unwrap());
        profile.sample[0].value[0] = -3;
        let (text, chosen) = folded_text(&profile);
        assert_eq!((text.as_str(), chosen.negative), ("main;g 4\n", 1));
    }

    #[test]
    fn drop_frames_removes_callees() {
        let text = "main;malloc;brk 1\nmain;operator new(int);malloc 2\nmain;run 3\nmalloc;x 4\n";
        let mut profile = from_tree(&folded_text::read(text.as_bytes()).unwrap());
        profile.string_table.extend(["malloc|operator new".to_owned(), "oper.*".to_owned(), "(".to_owned()]);
        let last = profile.string_table.len() as i64 - 1;
        let lines = |profile: &Profile| {
            let mut lines: Vec<String> = folded_text(profile).0.lines().map(str::to_owned).collect();
            lines.sort();
            lines.join(" | ")
        };
        profile.drop_frames = last - 2;
        assert_eq!(lines(&profile), "main 1 | main 2 | main;run 3 | malloc;x 4");
        profile.keep_frames = last - 1;
        assert_eq!(lines(&profile), "main 1 | main;operator new(int) 2 | main;run 3 | malloc;x 4");
        profile.drop_frames = last;
        assert!(selected(&profile.encode_to_vec(), &Selection::default(), &mut Vec::new()).is_err());
    }
}
