//! Converts aggregated stacks to OTLP profiles and back.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flightline_consumer::tree::Tree;
use opentelemetry_proto::tonic::profiles::v1development::{
    Profile, ProfilesData, ProfilesDictionary, ResourceProfiles, Sample, ScopeProfiles, ValueType,
};
use prost::Message;

use super::tables::Tables;
use crate::pprof::tree_unit;
use crate::resource::scope;

/// Maximum size of the folded text.
const MOST: usize = 1 << 30;

/// Converts a tree to one profile, without times, threads and attributes.
pub fn from_tree(tree: &Tree) -> ProfilesData {
    let mut tables = Tables::new();
    let (kind, unit) = match tree.unit.as_str() {
        "ns" => ("time", "nanoseconds"),
        "bytes" => ("space", "bytes"),
        "samples" => ("samples", "count"),
        other => (other, "count"),
    };
    let sample_type = ValueType { type_strindex: tables.name(kind), unit_strindex: tables.name(unit) };
    let mut samples = Vec::new();
    let mut stacks = tree.stacks();
    while let Some((path, weight)) = stacks.next() {
        let stack_index = tables.labels(path.iter().rev().map(|label| &tree.labels[label.index()]));
        let values = vec![i64::try_from(weight).unwrap_or(i64::MAX)];
        samples.push(Sample { stack_index, values, ..Sample::default() });
    }
    let profile = Profile { sample_type: Some(sample_type), samples, ..Profile::default() };
    let scope_profiles =
        vec![ScopeProfiles { scope: Some(scope()), profiles: vec![profile], ..ScopeProfiles::default() }];
    ProfilesData {
        resource_profiles: vec![ResourceProfiles { scope_profiles, ..ResourceProfiles::default() }],
        dictionary: Some(tables.finish()),
    }
}

/// Returns true if the bytes may be such a message: it begins with one of its two fields.
pub fn is(head: &[u8]) -> bool {
    matches!(head, [0x0a | 0x12, ..])
}

/// Writes encoded profiles as folded text and returns the unit. If there are several sample types,
/// `names` names those to use; they must have the same unit. Returns `None` if the bytes are not such a
/// message.
///
/// # Errors
/// There are several types and `names` is empty, a type in `names` does not exist, or `out` cannot be
/// written.
pub fn folded(bytes: &[u8], names: &[String], out: &mut impl Write) -> io::Result<Option<String>> {
    let Some(data) = ProfilesData::decode(bytes).ok().filter(|data| {
        // Many messages decode as any type. This type has a string table that begins with an empty
        // string.
        let strings = data.dictionary.as_ref().and_then(|tables| tables.string_table.first());
        strings.is_some_and(String::is_empty) && !data.resource_profiles.is_empty()
    }) else {
        return Ok(None);
    };
    let tables = data.dictionary.unwrap_or_default();
    write_folded(&data.resource_profiles, &tables, names, MOST, out).map(Some)
}

/// The sample types in the profiles of some resources, as name and unit.
pub fn types<'a>(
    resources: &'a [ResourceProfiles],
    tables: &'a ProfilesDictionary,
) -> impl Iterator<Item = ((&'a str, &'a str), &'a Profile)> {
    let text = |index: i32| at(&tables.string_table, index).map_or("", String::as_str);
    let scopes = resources.iter().flat_map(|resource| &resource.scope_profiles);
    scopes.flat_map(|scope| &scope.profiles).map(move |profile| {
        let of = profile.sample_type.unwrap_or_default();
        ((text(of.type_strindex), text(of.unit_strindex)), profile)
    })
}

/// Like [`folded`], for decoded profiles of some resources. The text has at most `most` bytes.
///
/// # Errors
/// As for [`folded`]; [`io::ErrorKind::FileTooLarge`] if the text would be longer.
pub fn write_folded(
    resources: &[ResourceProfiles],
    tables: &ProfilesDictionary,
    names: &[String],
    most: usize,
    out: &mut impl Write,
) -> io::Result<String> {
    let all: Vec<_> = self::types(resources, tables).collect();
    let mut types: Vec<(&str, &str)> = all.iter().map(|(of, _)| *of).collect();
    types.sort_unstable();
    types.dedup();
    let there = types.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if let Some(missing) = names.iter().find(|name| !types.iter().any(|(of, _)| of == name)) {
        return Err(invalid(format!("the input has no profile of {missing}; its profiles are: {there}")));
    }
    types.retain(|(name, _)| names.is_empty() || names.iter().any(|of| of == name));
    let mut units: Vec<&str> = types.iter().map(|(_, unit)| *unit).collect();
    units.dedup();
    let [unit] = units[..] else {
        return Err(invalid(format!("the input has several profiles; select one with -e: {there}")));
    };
    if types.len() > 1 && names.is_empty() {
        return Err(invalid(format!("the input has several profiles; select some with -e: {there}")));
    }
    // Writes each stack once, even if many samples share it, so the text is not larger than the input.
    let mut weights: BTreeMap<i32, u64> = BTreeMap::new();
    for (_, profile) in all.iter().filter(|(of, _)| types.contains(of)) {
        for sample in &profile.samples {
            let values = sample.values.iter().map(|&value| u64::try_from(value).unwrap_or(0));
            let weight = match sample.values.is_empty() {
                true => sample.timestamps_unix_nano.len() as u64,
                false => values.fold(0, u64::saturating_add),
            };
            let sum = weights.entry(sample.stack_index).or_default();
            *sum = sum.saturating_add(weight);
        }
    }
    let mut line = String::new();
    let mut written = 0;
    for (stack, weight) in weights.into_iter().filter(|&(_, weight)| weight > 0) {
        line.clear();
        put_stack(tables, stack, most - written, &mut line);
        written += line.len();
        if written >= most {
            let what = format!("its stacks take more than {most} bytes as text");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        writeln!(out, "{line} {weight}")?;
    }
    let kind = if let [(kind, _)] = types[..] { kind } else { "" };
    Ok(tree_unit(kind, unit).to_owned())
}

fn at<T>(table: &[T], index: i32) -> Option<&T> {
    usize::try_from(index).ok().and_then(|index| table.get(index))
}

/// Appends a stack, root first, with inlined functions as frames. Stops after `most` bytes: a hostile
/// table can refer to one long name many times.
fn put_stack(tables: &ProfilesDictionary, index: i32, most: usize, line: &mut String) {
    let stack = at(&tables.stack_table, index).filter(|stack| !stack.location_indices.is_empty());
    let Some(stack) = stack else { return line.push_str(flightline_consumer::fold::NO_STACK) };
    let mut put = |name: &str| {
        if !line.is_empty() {
            line.push(';');
        }
        line.push_str(&flightline_consumer::folded::clean(name));
        line.len() < most
    };
    for &location in stack.location_indices.iter().rev() {
        let Some(location) = at(&tables.location_table, location).filter(|_| location != 0) else {
            if put("?") {
                continue;
            }
            return;
        };
        let function = |index| at(&tables.function_table, index).filter(|_| index != 0);
        let named = location.lines.iter().rev().filter_map(|line| function(line.function_index));
        let names = named.filter_map(|function| at(&tables.string_table, function.name_strindex));
        let mut names = names.filter(|name| !name.is_empty()).peekable();
        let goes_on = match names.peek() {
            None => put(&format!("0x{:x}", location.address)),
            Some(_) => names.all(|name| put(name)),
        };
        if !goes_on {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use flightline_consumer::folded as folded_text;

    use super::*;

    fn packed(text: &str, unit: &str) -> ProfilesData {
        let mut tree = folded_text::read(text.as_bytes()).unwrap();
        tree.unit = unit.into();
        from_tree(&tree)
    }

    fn unpacked(data: &ProfilesData, names: &[&str]) -> io::Result<Option<(String, String)>> {
        let mut out = Vec::new();
        let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
        let unit = folded(&data.encode_to_vec(), &names, &mut out)?;
        Ok(unit.map(|unit| (String::from_utf8(out).unwrap(), unit)))
    }

    #[test]
    fn tree_round_trips_through_otlp() {
        let text = "main;f(int);g 3\nmain;h 4\n";
        let data = packed(text, "ns");
        assert!(is(&data.encode_to_vec()));
        assert_eq!(unpacked(&data, &[]).unwrap(), Some((text.into(), "ns".into())));
        // Other tools may write timestamps without values.
        let mut timed = packed("a;b 1\n", "samples");
        let sample = &mut timed.resource_profiles[0].scope_profiles[0].profiles[0].samples[0];
        (sample.values, sample.timestamps_unix_nano) = (Vec::new(), vec![1, 2, 3]);
        assert_eq!(unpacked(&timed, &[]).unwrap(), Some(("a;b 3\n".into(), "samples".into())));
    }

    #[test]
    fn shared_stack_is_written_once_with_total() {
        let mut data = packed("a;b 1\n", "samples");
        let samples = &mut data.resource_profiles[0].scope_profiles[0].profiles[0].samples;
        *samples = vec![samples[0].clone(); 1000];
        assert_eq!(unpacked(&data, &[]).unwrap().unwrap().0, "a;b 1000\n");
    }

    #[test]
    fn several_sample_types_require_a_selection() {
        let mut both = packed("a;b 1\n", "samples");
        let mut other = both.resource_profiles[0].scope_profiles[0].profiles[0].clone();
        other.sample_type = Some(ValueType { type_strindex: 3, unit_strindex: 4 });
        other.samples[0].values = vec![5];
        let tables = both.dictionary.as_mut().unwrap();
        tables.string_table.truncate(3);
        tables.string_table.extend(["cpu", "nanoseconds", "b"].map(str::to_owned));
        both.resource_profiles[0].scope_profiles[0].profiles.push(other);
        let error = unpacked(&both, &[]).unwrap_err().to_string();
        assert!(error.contains("select one with -e: cpu, samples"), "{error}");
        assert_eq!(unpacked(&both, &["cpu"]).unwrap().unwrap().1, "ns");
        assert!(unpacked(&both, &["wall"]).unwrap_err().to_string().contains("no profile of wall"));
    }

    #[test]
    fn non_otlp_input_is_not_recognized_and_damage_does_not_panic() {
        for bytes in
            [&b""[..], b"\n", b"\na;b 1\n", b"a;b 1\n", &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0x12, 0]]
        {
            assert!(folded(bytes, &[], &mut Vec::new()).unwrap().is_none(), "{bytes:?}");
        }
        let whole = packed("a;b 1\nc 2\n", "samples").encode_to_vec();
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                _ = folded(&bytes, &[], &mut Vec::new());
                _ = folded(&bytes[..at], &[], &mut Vec::new());
            }
        }
    }
}
