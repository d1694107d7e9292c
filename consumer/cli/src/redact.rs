//! Which text `scrub` replaces.

use std::cell::RefCell;

use clap::Args;
use jfr_format::read::{Class, Field};

use crate::scrub::names;
use crate::talk;
use flightline_consumer::print::glob;

/// Fields that hold what programs are told in confidence: values of system properties and environment variables, command
/// lines and the options of agents.
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

/// What to redact.
#[derive(Debug, Args)]
pub struct RedactArgs {
    /// Replace values of properties and environment variables, command lines and agents' options by a mark
    #[arg(long)]
    pub redact: bool,
    /// Replace the text of these fields, TYPE.FIELD, of events or constants; may be repeated
    #[arg(long, value_name = "FIELD,…")]
    pub redact_fields: Vec<String>,
    /// What stands in place of the text
    #[arg(long, value_name = "TEXT", default_value = "[redacted]")]
    pub mark: String,
}

impl RedactArgs {
    /// Whether anything is to be replaced.
    pub fn wanted(&self) -> bool {
        self.redact || !self.redact_fields.is_empty()
    }
}

/// The fields asked for, and which of them there were.
pub struct Fields<'a> {
    args: &'a RedactArgs,
    met: RefCell<Vec<&'a str>>,
}

impl<'a> Fields<'a> {
    pub fn new(args: &'a RedactArgs) -> Self {
        Self { args, met: RefCell::default() }
    }

    /// Whether the text of the field goes.
    pub fn goes(&self, class: &Class, field: &Field) -> bool {
        let full = format!("{}.{}", class.name, field.name);
        if self.args.redact && CONFIDENTIAL.contains(&full.as_str()) {
            return true;
        }
        let simple = class.name.rsplit('.').next().map(|name| format!("{name}.{}", field.name));
        let named = |name: &&str| glob(name, &full) || simple.as_deref().is_some_and(|s| glob(name, s));
        let found = self.args.redact_fields.iter().flat_map(|list| names(list)).find(named);
        let mut met = self.met.borrow_mut();
        if let Some(name) = found
            && !met.contains(&name)
        {
            met.push(name);
        }
        found.is_some()
    }

    /// Tells of names that no text field has: a typing error would leave text in.
    pub fn tell_unmet(&self) -> bool {
        let met = self.met.borrow();
        let mut all = true;
        for name in self.args.redact_fields.iter().flat_map(|list| names(list)) {
            if !met.contains(&name) {
                talk::warning(format_args!(
                    "--redact-fields {name}: the recording declares no such field with text"
                ));
                all = false;
            }
        }
        all
    }
}
