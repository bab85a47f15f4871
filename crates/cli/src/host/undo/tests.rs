// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use crate::host::module::Module;

#[test]
fn of_a_pair_the_one_that_holds_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, ratio) =
        (dir.path().join("dirty_background_bytes"), dir.path().join("dirty_background_ratio"));
    let set = |bytes_now: &str, ratio_now: &str| {
        std::fs::write(&bytes, bytes_now).unwrap();
        std::fs::write(&ratio, ratio_now).unwrap();
        Undo::setting(&bytes).unwrap().unwrap()
    };
    let undo = |file: &Path, before: &str| Undo::Setting {
        place: Place::file(file),
        before: before.into(),
    };
    assert_eq!(set("0\n", "10\n"), undo(&ratio, "10"));
    assert_eq!(set("4096\n", "0\n"), undo(&bytes, "4096"));
    assert_eq!(set("0\n", "0\n"), undo(&bytes, "0"));
}

#[test]
fn settings_go_back_in_reverse_and_one_failure_does_not_keep_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("a"), dir.path().join("b"));
    std::fs::write(&first, "1\n").unwrap();
    std::fs::write(&second, "none [x]\n").unwrap();
    let mut done = vec![Undo::setting(&first).unwrap().unwrap()];
    write_setting(&first, "2").unwrap();
    // Changed twice: the first value counts.
    done.push(Undo::setting(&first).unwrap().unwrap());
    done.push(Undo::Setting {
        place: Place::file(&dir.path().join("no/such")),
        before: "1".into(),
    });
    done.push(Undo::setting(&second).unwrap().unwrap());
    write_setting(&first, "3").unwrap();
    let error = undo_all(&done, Duration::ZERO, false).unwrap_err().to_string();
    assert!(error.contains("no/such"), "{error}");
    assert_eq!(std::fs::read_to_string(&first).unwrap(), "1");
    assert_eq!(std::fs::read_to_string(&second).unwrap(), "x");
    assert_eq!(Undo::setting(&dir.path().join("none")).unwrap(), None);
}

fn directory(path: &Path, made: Option<Identity>, since_ns: u64) -> Undo {
    Undo::Directory { kind: DirectoryKind::Files, path: path.into(), since_ns, made }
}

#[test]
fn what_was_never_made_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let done = [
        Undo::Boot { id: "this".into() },
        directory(&dir.path().join("d"), None, 0),
        Undo::Mount { at: dir.path().join("d/m") },
        Undo::Loop { backing: dir.path().join("d/l") },
    ];
    undo_all(&done, Duration::ZERO, true).unwrap();
}

#[test]
fn only_what_was_made_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("file"), "").unwrap();
        path
    };
    let (own, foreign) = (make("own"), make("foreign"));
    let done = [
        directory(&own, None, 0),
        directory(&own, Identity::of(&own), 0),
        directory(&foreign, Identity::of(&own), 0),
    ];
    let notes = undo_all(&done, Duration::ZERO, false).unwrap().concat();
    assert!(notes.contains("foreign` is not what was made"), "{notes}");
    assert!(!own.exists());
    assert!(foreign.join("file").exists());
}

#[test]
fn a_directory_of_which_nothing_is_known_goes_only_if_it_is_new_and_empty() {
    let dir = tempfile::tempdir().unwrap();
    let before_ns = unix_ns();
    let (empty, full) = (dir.path().join("empty"), dir.path().join("full"));
    std::fs::create_dir_all(full.join("inner")).unwrap();
    std::fs::create_dir(&empty).unwrap();
    let later_ns = unix_ns() + 60_000_000_000;
    undo_all(&[directory(&empty, None, later_ns)], Duration::ZERO, true).unwrap();
    assert!(empty.exists(), "it was there before");
    undo_all(&[directory(&empty, None, before_ns)], Duration::ZERO, true).unwrap();
    assert!(!empty.exists());
    let notes = undo_all(&[directory(&full, None, before_ns)], Duration::ZERO, true).unwrap();
    assert!(notes.concat().contains("was left"), "{notes:?}");
    assert!(full.join("inner").exists());
}

#[test]
fn a_setting_that_somebody_else_has_changed_stays() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("setting");
    let holds = |value: &str| std::fs::read_to_string(&file).unwrap() == value;
    std::fs::write(&file, "1").unwrap();
    let mut done = vec![Undo::setting(&file).unwrap().unwrap()];
    std::fs::write(&file, "2").unwrap();
    undo_all(&done, Duration::ZERO, true).unwrap();
    assert!(holds("1"), "killed before it could say what it wrote");
    std::fs::write(&file, "2").unwrap();
    done.push(done[0].as_set().unwrap());
    undo_all(&done, Duration::ZERO, true).unwrap();
    assert!(holds("1"));
    std::fs::write(&file, "3").unwrap();
    let notes = undo_all(&done, Duration::ZERO, true).unwrap().concat();
    assert!(notes.contains("set it to 3") && holds("3"), "{notes}");
    undo_all(&done, Duration::ZERO, false).unwrap();
    assert!(holds("1"));
}

#[test]
fn what_was_changed_along_goes_back_after_it_unless_it_is_somebody_elses() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (idle, weight) = (at("cpu.idle"), at("cpu.weight"));
    let set = |idle_now: &str, weight_now: &str| {
        std::fs::write(&idle, idle_now).unwrap();
        std::fs::write(&weight, weight_now).unwrap();
    };
    let hold = || [&idle, &weight].map(|file| std::fs::read_to_string(file).unwrap());
    set("0", "50");
    let mut done =
        vec![Undo::setting(&weight).unwrap().unwrap(), Undo::setting(&idle).unwrap().unwrap()];
    set("1", "0");
    done.extend([done[0].as_set().unwrap(), done[1].as_set().unwrap()]);
    undo_all(&done, Duration::ZERO, true).unwrap();
    assert_eq!(hold(), ["0", "50"]);
    set("1", "70");
    let notes = undo_all(&done, Duration::ZERO, true).unwrap().concat();
    assert!(notes.contains("set it to 70"), "{notes}");
    assert_eq!(hold(), ["0", "70"]);
    std::fs::remove_file(&weight).unwrap();
    let notes = undo_all(&done, Duration::ZERO, true).unwrap().concat();
    assert!(notes.contains("cpu.weight` is gone"), "{notes}");
}

#[test]
fn what_has_its_old_value_needs_not_be_writable() {
    let place = Place::file(Path::new("/proc/version"));
    put_back(&place, &place.read().unwrap().unwrap()).unwrap();
    assert!(put_back(&place, "1").is_err());
}

#[test]
fn an_entry_reads_back_as_it_was_written() {
    for undo in [
        Undo::Mount { at: "/a b".into() },
        Undo::Loop { backing: "/d\"\n".into() },
        Undo::Setting { place: Place::file(Path::new("/f")), before: "1 2\n".into() },
        Undo::Set { place: Place::file(Path::new("/f")), value: "1".into() },
        Undo::Set {
            place: Place::Module(Module {
                module: "brd".into(),
                image: "/lib/modules/x/brd.ko".into(),
                parameters: vec!["rd_nr".into()],
            }),
            value: "unloaded".into(),
        },
        Undo::Boot { id: "a-b".into() },
        directory(Path::new("/c"), Some(Identity { dev: 1, ino: u64::MAX }), 1),
    ] {
        let line = serde_json::to_string(&undo).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Undo>(&line).unwrap(), undo);
    }
}
