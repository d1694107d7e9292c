//! Views of real recordings contain the same values as fields that are read by name.

use crate::dump;

use std::borrow::Cow;

use jfr_format::event::{ArrayRef, Reference, StructRef, Value};
use jfr_format::ids::Ticks;
use jfr_format::jfr_view;
use jfr_format::read::{Input, Item, Views};

jfr_view! {
    #[derive(Debug)]
    struct Sample<'a>: "jdk.ExecutionSample" {
        state: Cow<'a, str> = "state",
        stack: Option<Reference<'a>> = "stackTrace",
        thread: Reference<'a> = "sampledThread",
        start: Ticks = "startTime",
        none: Option<i64> = "noSuchField",
        list: Option<ArrayRef<'a>> = "noList",
        inner: Option<StructRef<'a>> = "noStruct",
    }
}

jfr_view! {
    struct Setting: "jdk.ActiveSetting" { value: String = "value", id: i64 = "id" }
}

jfr_view! {
    struct Lacking: "jdk.ExecutionSample" { start: i64 = "startTime", gone: i64 = "noSuchField" }
}

jfr_view! {
    struct Twice: "jdk.ExecutionSample" { start: i64 = "startTime", again: i64 = "startTime" }
}

fn key(value: Option<Value<'_>>) -> Option<u64> {
    if let Some(Value::Reference(reference)) = value { Some(reference.key()) } else { None }
}

#[test]
fn views_have_field_values() {
    let (mut samples, mut settings) = (0, 0);
    for path in dump::fixtures("recordings") {
        let mut input = Input::open(&path).unwrap();
        let (mut of_samples, mut of_settings) = (Views::default(), Views::default());
        while let Some(item) = input.next().unwrap() {
            let Item::Events(batch) = item else { continue };
            for event in batch.events() {
                let field = |name: &str| event.field(name).unwrap();
                let name = event.class().name.clone();
                match of_samples.read::<Sample>(&event).unwrap() {
                    Some(sample) => {
                        samples += 1;
                        assert_eq!(&*name, "jdk.ExecutionSample");
                        assert_eq!(Some(sample.start.0), event.start_ticks());
                        assert_eq!(Some(sample.thread.key()), key(field("sampledThread")));
                        assert_eq!(sample.stack.map(|stack| stack.key()), key(field("stackTrace")));
                        assert_eq!(Some(sample.state), field("state").unwrap().text().unwrap());
                        assert!(sample.none.is_none() && sample.list.is_none() && sample.inner.is_none());
                        let error = Views::default().read::<Lacking>(&event).err().unwrap().to_string();
                        assert!(error.contains("jdk.ExecutionSample has no field noSuchField"), "{error}");
                        let error = Views::default().read::<Twice>(&event).err().unwrap().to_string();
                        assert!(error.contains("startTime of jdk.ExecutionSample is bound twice"), "{error}");
                    }
                    None => assert_ne!(&*name, "jdk.ExecutionSample"),
                }
                if let Some(setting) = of_settings.read::<Setting>(&event).unwrap() {
                    settings += 1;
                    let value = field("value").unwrap().text().unwrap();
                    assert_eq!(setting.value, value.unwrap_or_default());
                    assert_eq!(Some(setting.id), field("id").unwrap().as_i64());
                }
            }
        }
    }
    assert!(samples > 100 && settings > 100, "{samples} samples, {settings} settings");
}
