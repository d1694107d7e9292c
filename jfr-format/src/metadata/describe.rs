//! Describes the schema as a metadata tree.

use super::Element;
use crate::ids::TypeId;
use crate::schema::{self, Field, Kind, OwnType, Type, Unit};
use std::sync::Arc;

pub(super) fn root<'a>(types: impl Iterator<Item = &'a Type>, own: &[Arc<OwnType>]) -> Element {
    let own = own.iter().map(|own| class(&own.ty, &own.fields));
    let types = types.map(|ty| class(ty, ty.fields)).chain(own);
    // The JDK throws without a region; times are UTC, readers convert.
    let region = Element::new("region").attribute("locale", "en_US").attribute("gmtOffset", "0");
    Element::new("root").child(Element::new("metadata").children(types)).child(region)
}

/// Returns the types of its fields and annotations, as the elements name them.
pub(super) fn needs(ty: &Type, fields: &[Field]) -> Vec<TypeId> {
    fn add(element: &Element, to: &mut Vec<TypeId>) {
        let named = element.attributes.iter().filter(|(key, _)| key == "class");
        to.extend(named.filter_map(|(_, id)| id.parse().ok().map(TypeId)));
        element.children.iter().for_each(|child| add(child, to));
    }
    let mut types = Vec::new();
    add(&class(ty, fields), &mut types);
    types
}

fn class(ty: &Type, fields: &[Field]) -> Element {
    let mut class = Element::new("class").attribute("name", ty.name).attribute("id", ty.id.to_string());
    match ty.kind {
        Kind::Event => class = class.attribute("superType", "jdk.jfr.Event"),
        Kind::Annotation => class = class.attribute("superType", "java.lang.annotation.Annotation"),
        Kind::Simple => class = class.attribute("simpleType", "true"),
        Kind::Primitive | Kind::Struct => {}
    }
    class = class.children(fields.iter().map(field));
    if is_content_type(ty.id) {
        class = class.child(annotation(schema::CONTENT_TYPE));
    }
    if !ty.label.is_empty() {
        class = class.child(annotation(schema::LABEL).attribute("value", ty.label));
    }
    if !ty.description.is_empty() {
        class = class.child(annotation(schema::DESCRIPTION).attribute("value", ty.description));
    }
    if !ty.category.is_empty() {
        let category = annotation(schema::CATEGORY);
        let parts = ty.category.iter().enumerate();
        class = class.child(parts.fold(category, |to, (i, part)| to.attribute(format!("value-{i}"), *part)));
    }
    class
}

fn field(field: &Field) -> Element {
    let mut element =
        Element::new("field").attribute("name", field.name).attribute("class", field.ty.to_string());
    if field.pooled {
        element = element.attribute("constantPool", "true");
    }
    if field.array {
        element = element.attribute("dimension", "1");
    }
    if !field.label.is_empty() {
        element = element.child(annotation(schema::LABEL).attribute("value", field.label));
    }
    if field.contextual {
        element = element.child(annotation(schema::CONTEXTUAL));
    }
    let also = match field.unit {
        Unit::UnsignedBytes => Some(annotation(schema::UNSIGNED)),
        Unit::BitRate => Some(annotation(schema::FREQUENCY)),
        _ => None,
    };
    element.children(also).children(unit(field.unit))
}

fn unit(unit: Unit) -> Option<Element> {
    let with = |id, value: &'static str| Some(annotation(id).attribute("value", value));
    match unit {
        Unit::None => None,
        Unit::Unsigned => Some(annotation(schema::UNSIGNED)),
        Unit::Timestamp => with(schema::TIMESTAMP, "TICKS"),
        Unit::EpochMillis => with(schema::TIMESTAMP, "MILLISECONDS_SINCE_EPOCH"),
        Unit::Span => with(schema::TIMESPAN, "TICKS"),
        Unit::Nanos => with(schema::TIMESPAN, "NANOSECONDS"),
        Unit::Millis => with(schema::TIMESPAN, "MILLISECONDS"),
        Unit::Bytes | Unit::UnsignedBytes => with(schema::DATA_AMOUNT, "BYTES"),
        Unit::BitRate => with(schema::DATA_AMOUNT, "BITS"),
        Unit::Frequency => Some(annotation(schema::FREQUENCY)),
        Unit::Micros => with(schema::TIMESPAN, "MICROSECONDS"),
        Unit::Percentage => Some(annotation(schema::PERCENTAGE)),
        Unit::Address => Some(annotation(schema::MEMORY_ADDRESS)),
    }
}

fn annotation(id: TypeId) -> Element {
    Element::new("annotation").attribute("class", id.to_string())
}

fn is_content_type(id: TypeId) -> bool {
    [
        schema::TIMESTAMP,
        schema::TIMESPAN,
        schema::DATA_AMOUNT,
        schema::PERCENTAGE,
        schema::MEMORY_ADDRESS,
        schema::UNSIGNED,
        schema::FREQUENCY,
    ]
    .contains(&id)
}
