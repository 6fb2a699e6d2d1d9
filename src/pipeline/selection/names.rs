//! What names decide about samples: each place is looked at once.

use super::Filter;
use crate::profile::shown::is_shown;
use crate::profile::{Names, Resolution};

/// What of the questions about names holds: bits of [`SYMBOL`] and [`MODULE`].
pub(in crate::pipeline) type Found = u8;

/// A function of a name that is asked for.
const SYMBOL: Found = 1;
/// A module that is asked for.
const MODULE: Found = 2;

/// What has to be found in a stack.
pub(in crate::pipeline) fn wanted(filter: &Filter) -> Found {
    let selection = filter.selection();
    let symbol = if selection.symbols.is_empty() {
        0
    } else {
        SYMBOL
    };
    let module = if selection.modules.is_empty() {
        0
    } else {
        MODULE
    };
    symbol | module
}

/// What is found at one place, inlined functions included.
pub(in crate::pipeline) fn found(filter: &Filter, resolution: &Resolution, names: &Names) -> Found {
    let selection = filter.selection();
    let mut found = 0;
    for part in &resolution.chain {
        let Some(frame) = names.frames().get(part.frame as usize) else {
            continue;
        };
        let name = names.text(frame.name);
        let is_asked = |name: &str| selection.symbols.iter().any(|regex| regex.is_match(name));
        if is_asked(name) || is_shown(name.as_bytes(), is_asked) {
            found |= SYMBOL;
        }
        let module = names.text(frame.module);
        if selection
            .modules
            .iter()
            .any(|pattern| pattern.matches(module))
        {
            found |= MODULE;
        }
    }
    found
}
