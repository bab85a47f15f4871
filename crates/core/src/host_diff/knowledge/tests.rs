// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use proptest::prelude::*;

#[test]
fn patterns() {
    for (pattern, key, is) in [
        ("/a", "/a", true),
        ("/a", "/ab", false),
        ("/a*", "/ab/c", true),
        ("/a/*/c", "/a/cpu*/c", true),
        ("/a/*c", "/a/c", true),
        ("/a/*/c", "/a/c", false),
        ("*", "", true),
        ("/ab*b", "/ab", false),
        ("/cpu/*scaling_driver", "/cpu/cpufreq/policy*/scaling_driver", true),
        ("/cpu/*scaling_driver", "/cpu/cpu*/cpufreq/scaling_driver", true),
    ] {
        assert_eq!(fits(pattern, key), is, "{pattern} {key}");
    }
}

#[test]
fn entries_are_whole() {
    for known in TABLES.iter().copied().flatten() {
        let name = known.what;
        assert!(!known.keys.is_empty() && known.weight <= 100, "{name}");
        assert!(
            known.keys.iter().all(|key| key.starts_with('/') || key.starts_with('*')),
            "{name}"
        );
        for text in [known.what, known.why] {
            assert!(
                text.len() > 3 && !text.ends_with('.') && !text.contains('\n'),
                "{name}: {text}"
            );
            assert!(!text.contains("  "), "{name}: {text}");
        }
        let matters = known.weight >= MEDIUM;
        assert!(!matters || !known.slows.is_empty(), "{name}: what does it cost?");
        assert!(known.slower == SlowerSide::Unknown || !known.slows.is_empty(), "{name}");
    }
}

/// An entry after one with a wider pattern would never be found.
#[test]
fn every_entry_can_be_found() {
    let mut hidden = Vec::new();
    for known in TABLES.iter().copied().flatten() {
        for pattern in known.keys {
            let found = find(&pattern.replace('*', "x"));
            if found.map(|it| (it.what, it.keys)) != Some((known.what, known.keys)) {
                hidden.push((*pattern, known.what, found.map(|it| it.what)));
            }
        }
    }
    assert!(hidden.is_empty(), "{hidden:#?}");
}

/// The keys of incident 5, and similar ones that are easily confused with them.
#[test]
fn what_is_known_of_some_keys() {
    for (key, what) in [
        ("/sys/devices/system/cpu/cpufreq/policy*/scaling_governor", "frequency governor"),
        ("/sys/devices/system/cpu/cpufreq/boost", "boost above the nominal frequency"),
        ("/proc/cmdline#processor.max_cstate", "deepest idle state that ACPI may use"),
        ("/proc/modules#acpi_cpufreq", "module that sets CPU frequencies"),
        ("/proc/modules#thermal", "module for temperatures and cooling"),
        ("/sys/devices/system/cpu/vulnerabilities/meltdown", "mitigation of a processor flaw"),
        ("/proc/sys/vm/dirty_writeback_centisecs", "when dirty pages are written"),
        ("/proc/sys/vm/user_reserve_kbytes", "limit that follows from the size of memory"),
        (
            "/sys/devices/system/cpu/cpu*/cpuidle/state2/disable",
            "idle states that are switched off",
        ),
        ("/proc/cmdline#foo", "parameter of the kernel's command line"),
    ] {
        assert_eq!(find(key).map(|known| known.what), Some(what), "{key}");
    }
    assert!(find("/proc/sys/kernel/hostname").is_none());
}

proptest! {
    #[test]
    fn any_text_fits_its_own_pattern(parts in prop::collection::vec("[a*é/]{0,3}", 1..5), filling in "[a/*é]{0,3}") {
        let pattern = parts.join("*");
        let key = pattern.replace('*', &filling);
        prop_assert!(fits(&pattern, &key), "{pattern} {key}");
    }
}
