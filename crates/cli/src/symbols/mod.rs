// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which functions addresses belong to: of the kernel, and of what processes have mapped.
//!
//! The files may be anybody's, so they are read in the process of `cli::reader`, which may come to grief over them.
//! Without debug information: tables of symbols are enough for names, and take a tenth of the time.

mod go;
mod perf_map;

use crate::collect::Roots;
use crate::limits::{code_mappings, places};
use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use deburr_core::procfs::maps::CodeMapping;
use deburr_core::recording::FRAME_END;
use deburr_core::text::name;
use std::collections::BTreeMap;
use std::io;

/// Bytes of a name that are kept: those of templates have thousands.
const MOST_NAME_BYTES: usize = 200;

/// In place of the name of a function: there is no code at that address.
pub(crate) const NOT_CODE: &str = "[no code]";

/// Finds names, and keeps the tables of the files that it has read.
pub(crate) struct Names {
    symbolizer: Symbolizer,
}

impl Default for Names {
    fn default() -> Self {
        let builder = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false);
        Self { symbolizer: builder.build() }
    }
}

impl Names {
    /// The functions of these addresses in a process, in their order; where there is no name, that of the file in brackets.
    ///
    /// # Errors
    /// What the process has mapped cannot be read: it has ended, or the privileges do not suffice.
    pub(crate) fn of_process(
        &self,
        roots: &Roots,
        pid: u32,
        addresses: &[u64],
    ) -> io::Result<Vec<String>> {
        let mappings = code_mappings(roots, pid)?;
        let mut names = vec![NOT_CODE.to_owned(); addresses.len()];
        let mut within: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (i, &address) in addresses.iter().enumerate() {
            let after = mappings.partition_point(|mapping| mapping.end <= address);
            if mappings.get(after).is_some_and(|mapping| mapping.start <= address) {
                within.entry(after).or_default().push(i);
            }
        }
        let mut nameless = Vec::new();
        for (at, wanted) in within {
            let mapping = &mappings[at];
            let offsets: Vec<u64> = wanted
                .iter()
                .map(|&i| (addresses[i] - mapping.start).saturating_add(mapping.offset))
                .collect();
            let mut found = self.in_file(roots, pid, mapping, &offsets);
            if found.iter().any(Option::is_none)
                && let Some(of_go) = go::functions(roots, pid, mapping, &offsets)
            {
                found = found.into_iter().zip(of_go).map(|(it, of_go)| it.or(of_go)).collect();
            }
            for (&i, found) in wanted.iter().zip(found) {
                match found {
                    Some(found) => names[i] = found,
                    None => {
                        names[i] = of_file(&mapping.path);
                        nameless.push(i);
                    }
                }
            }
        }
        let unknown: Vec<u64> = nameless.iter().map(|&i| addresses[i]).collect();
        if !unknown.is_empty()
            && let Some(made) = perf_map::functions(roots, pid, &unknown)
        {
            for (i, made) in nameless.into_iter().zip(made) {
                names[i] = made.unwrap_or_else(|| std::mem::take(&mut names[i]));
            }
        }
        Ok(names)
    }

    /// The functions of these addresses in the kernel, in their order.
    pub(crate) fn of_kernel(&self, addresses: &[u64]) -> Vec<String> {
        let kernel = Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() };
        let found = self.symbolizer.symbolize(&Source::Kernel(kernel), Input::AbsAddr(addresses));
        let found = found.map(|found| found.into_iter().map(|it| named(&it)).collect::<Vec<_>>());
        let mut names = found.unwrap_or_default();
        names.resize(addresses.len(), None);
        names.into_iter().map(|it| it.unwrap_or_else(|| "[kernel]".into())).collect()
    }

    /// The functions at these places of a mapped file; `None` = not known.
    fn in_file(
        &self,
        roots: &Roots,
        pid: u32,
        mapping: &CodeMapping,
        offsets: &[u64],
    ) -> Vec<Option<String>> {
        if !mapping.path.starts_with(b"/") {
            return vec![None; offsets.len()];
        }
        for path in places((mapping.start, mapping.end), &mapping.path, roots, pid) {
            let elf = Elf { debug_syms: false, ..Elf::new(path) };
            let input = Input::FileOffset(offsets);
            if let Ok(found) = self.symbolizer.symbolize(&Source::Elf(elf), input) {
                let mut names: Vec<_> = found.iter().map(named).collect();
                names.resize(offsets.len(), None);
                return names;
            }
        }
        vec![None; offsets.len()]
    }
}

fn named(found: &Symbolized<'_>) -> Option<String> {
    match found {
        Symbolized::Sym(symbol) => Some(fit(&symbol.name)),
        Symbolized::Unknown(..) => None,
    }
}

/// The name of a file in brackets.
fn of_file(path: &[u8]) -> String {
    let path = name::decode(path);
    let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
    let last = path.rsplit('/').next().unwrap_or(path);
    match last.trim_matches(['[', ']']) {
        "" => "[anonymous]".into(),
        last => fit(&format!("[{last}]")),
    }
}

/// Short enough, and without what separates the functions of a stack.
fn fit(name: &str) -> String {
    let mut end = name.len().min(MOST_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let cut = if end < name.len() { "…" } else { "" };
    format!("{}{cut}", name[..end].replace(FRAME_END, ":"))
}

#[cfg(test)]
mod tests;
