//! Replaces text for `scrub`.

use std::cell::RefCell;

use clap::{Args, ValueEnum};
use flightline_consumer::redact;
use jfr_format::edit::Redact;
use jfr_format::read::{Class, Field};

use crate::diagnostics;
use flightline_consumer::print::glob;

/// Fields that often hold secrets: values of properties and environment variables, command lines, options of
/// agents.
const CONFIDENTIAL: &[&str] = &[
    "jdk.InitialEnvironmentVariable.value",
    "jdk.InitialSecurityProperty.value",
    "jdk.InitialSystemProperty.value",
    "jdk.JVMInformation.javaArguments",
    "jdk.JVMInformation.jvmArguments",
    "jdk.JVMInformation.jvmFlags",
    "jdk.JavaAgent.options",
    "jdk.NativeAgent.options",
    "jdk.ProcessStart.command",
    "jdk.StringFlag.newValue",
    "jdk.StringFlag.oldValue",
    "jdk.StringFlag.value",
    "jdk.StringFlagChanged.newValue",
    "jdk.StringFlagChanged.oldValue",
    "jdk.SystemProcess.commandLine",
];

/// Names of processes, and their titles: `--redact=all` replaces only secrets in them, so that processes can
/// be distinguished.
const TITLES: &str = "jdk.types.ThreadGroup.name";

/// The values of `--redact`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Extent {
    /// Text that looks like a secret, by its name or its form
    Secrets,
    /// Every value of properties and environment variables, all command lines and options of agents
    All,
}

/// Options for redaction.
#[derive(Debug, Args)]
pub struct RedactArgs {
    /// Replace secrets in properties, environment variables, command lines and agents' options; with
    /// `--redact=all`, replace all of their text
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "secrets"
    )]
    pub redact: Option<Extent>,
    /// Replace the text of these fields, TYPE.FIELD, of events or constants; repeatable
    #[arg(long, value_name = "FIELD,…")]
    pub redact_fields: Vec<String>,
    /// Replacement text
    #[arg(long, value_name = "TEXT", default_value = redact::MARK)]
    pub mark: String,
}

impl RedactArgs {
    /// Returns true if anything is to be replaced.
    pub fn any(&self) -> bool {
        self.redact.is_some() || !self.redact_fields.is_empty()
    }
}

/// The fields to redact, and the names of `--redact-fields` that matched one.
pub struct Fields<'a> {
    args: &'a RedactArgs,
    met: RefCell<Vec<&'a str>>,
}

impl<'a> Fields<'a> {
    pub fn new(args: &'a RedactArgs) -> Self {
        Self { args, met: RefCell::default() }
    }

    /// Returns what to do with the text of the field.
    pub fn redact(&self, class: &Class, field: &Field) -> Redact {
        let full = format!("{}.{}", class.name, field.name);
        let simple = class.name.rsplit('.').next().map(|name| format!("{name}.{}", field.name));
        let named = |name: &&str| glob(name, &full) || simple.as_deref().is_some_and(|s| glob(name, s));
        let found = self.args.redact_fields.iter().flat_map(|list| names(list)).find(named);
        let mut met = self.met.borrow_mut();
        if let Some(name) = found
            && !met.contains(&name)
        {
            met.push(name);
        }
        match self.args.redact {
            _ if found.is_some() => Redact::All,
            Some(extent) if CONFIDENTIAL.contains(&full.as_str()) => match extent {
                Extent::Secrets => Redact::Secrets,
                Extent::All => Redact::All,
            },
            Some(_) if full == TITLES => Redact::Secrets,
            _ => Redact::Keep,
        }
    }

    /// Warns of names that no text field has: after a typing error, the text would stay. Returns true if
    /// there are none.
    pub fn warn_unmet(&self) -> bool {
        let met = self.met.borrow();
        let mut all = true;
        for name in self.args.redact_fields.iter().flat_map(|list| names(list)) {
            if !met.contains(&name) {
                diagnostics::warning(format_args!(
                    "--redact-fields {name}: the recording declares no text field with this name"
                ));
                all = false;
            }
        }
        all
    }
}

/// The names of a list, without blanks and quotation marks.
pub fn names(filter: &str) -> impl Iterator<Item = &str> {
    filter.split(',').map(|name| name.trim().trim_matches(|c| c == '"' || c == '\''))
}
