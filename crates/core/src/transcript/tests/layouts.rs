// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other layouts: real output of Debian's tools (`fixtures/transcripts/debian`), and examples by hand.

use super::super::{Document, Given, Weight};
use super::{assert_whole, cpus, number, one, read, said, transcript};
use crate::recording::check::Checker;

macro_rules! debian {
    ($name:literal) => {
        include_str!(concat!("../../../../../fixtures/transcripts/debian/", $name))
    };
}

/// What each section was taken for, and its samples.
fn sections(document: &Document) -> Vec<(&str, &str)> {
    let all = document.files.iter().flat_map(|file| &file.sections);
    all.map(|section| (section.tool.as_str(), section.samples.as_str())).collect()
}

#[test]
fn real_output_of_debians_tools_is_understood() {
    for (text, tool, samples) in [
        (debian!("vmstat-wt.txt"), "vmstat", "1 row"),
        (debian!("iostat-xt.txt"), "iostat", "2 reports"),
        (debian!("iostat.json"), "sysstat, JSON", "2 rows"),
        (debian!("mpstat.txt"), "mpstat, sar", "6 rows"),
        (debian!("mpstat.json"), "sysstat, JSON", "6 rows"),
        (debian!("pidstat.txt"), "pidstat", "16 rows"),
        (debian!("pidstat-ht.txt"), "pidstat", "18 rows"),
        (debian!("top-b.txt"), "top", "23 processes"),
        (debian!("ps-psr.txt"), "ps", "19 processes"),
        (debian!("lscpu.txt"), "lscpu", "43 facts"),
        (debian!("strace-c.txt"), "strace -c", "22 calls"),
    ] {
        let document = one(text);
        assert_whole(&document);
        assert_eq!(sections(&document), [(tool, samples)]);
    }
}

/// The same half minute, seen by four at once: a disk with five bursts.
#[test]
fn iostat_sar_and_the_kernels_own_counters_say_the_same_of_a_disk() {
    let texts = [
        (debian!("iostat-bursts.txt"), "iostat", "28 reports"),
        (debian!("sar-d.txt"), "sar", "84 rows"),
        (debian!("sar-d-p.txt"), "sar", "84 rows"),
        (debian!("diskstats.txt"), "/proc/diskstats", "29 captures"),
    ];
    let title = "`vda` has 5 bursts, each shorter than the 1.0 s of a report, 6.0 s, 5.0 s, 5.0 s, 5.0 s apart";
    for (text, tool, samples) in texts {
        let document = one(text);
        assert_whole(&document);
        assert_eq!(sections(&document), [(tool, samples)]);
        // Those of idle disks follow.
        let said = &document.statements[0];
        assert_eq!((said.weight, said.title.as_str()), (Weight::Found, title), "{tool}");
        let busy = number(said, "busy");
        assert!((0.15..0.17).contains(&busy), "{tool}: {busy}");
        let read = transcript(&[("a", text)], Given::default());
        assert!(!read.records.is_empty(), "{tool}: it is judged by the rules");
        let mut checker = Checker::default();
        read.records.iter().for_each(|record| checker.push(record));
        assert_eq!(checker.finish().violations, [], "{tool}");
    }
}

#[test]
fn captures_of_disks_need_two_and_their_distance() {
    let text = debian!("diskstats.txt");
    let plain: Vec<&str> = text.lines().filter(|line| line.contains("vda")).collect();
    let one_capture = one(plain[0]);
    assert_eq!(said(&one_capture, "device-bursts").weight, Weight::Open);
    let no_times = one(&plain.join("\n"));
    assert_eq!(said(&no_times, "device-bursts").weight, Weight::Open);
    let given = Given { interval_s: Some(1.0), ..Given::default() };
    let document = read(&[("a", &plain.join("\n"))], given);
    assert_eq!(said(&document, "device-bursts").weight, Weight::Found);
    // Partitions are in the counters of their disk; a device whose counters fall was another one.
    let line = |name: &str, n: u64| format!("8 0 {name} {n} 0 {n} 0 {n} 0 {n} 0 0 {n} {n}");
    let capture =
        |n: u64| ["sda", "sda1", "nvme0n1", "nvme0n1p2"].map(|name| line(name, n)).join("\n");
    let text = [capture(1000), capture(2000), line("sda", 5), line("nvme0n1", 3000)].join("\n");
    let document = read(&[("a", &text)], given);
    let titles: Vec<&str> = document.statements.iter().map(|it| it.title.as_str()).collect();
    assert!(titles.iter().all(|it| !it.contains("sda1") && !it.contains("p2")), "{titles:?}");
    assert_eq!(titles.len(), 2, "{titles:?}");
}

#[test]
fn the_number_of_cpus_is_taken_from_the_text() {
    for text in [debian!("mpstat.txt"), debian!("iostat.json"), debian!("lscpu.txt")] {
        let document = one(text);
        assert_eq!(
            (document.known[0].name.as_str(), document.known[0].value.as_str()),
            ("CPUs", "2")
        );
    }
    // It explains the run queue of another file, and the user is believed first.
    let files = [("a", debian!("lscpu.txt")), ("b", debian!("vmstat-wt.txt"))];
    assert_eq!(read(&files, Given::default()).known[0].source, "a:5");
    assert_eq!(read(&files, cpus(7)).known[0].value, "7");
}

fn mpstat(rows: &[(&str, f64, f64)]) -> String {
    let mut text = String::new();
    for s in 0..4 {
        text += &format!(
            "\n10:00:0{s} AM CPU %usr %nice %sys %iowait %irq %soft %steal %guest %gnice %idle\n"
        );
        for (cpu, steal, idle) in rows {
            let user = 100.0 - steal - idle;
            text += &format!(
                "10:00:0{s} AM {cpu} {user:.2} 0.00 0.00 0.00 0.00 0.00 {steal:.2} 0.00 0.00 {idle:.2}\n"
            );
        }
    }
    text + "Average: all 1.00 0.00 0.00 0.00 0.00 0.00 99.00 0.00 0.00 0.00\n"
}

#[test]
fn steal_and_a_full_cpu_are_told_from_their_decoys() {
    let document = one(&mpstat(&[("all", 12.0, 40.0), ("0", 10.0, 40.0), ("1", 14.0, 40.0)]));
    assert_whole(&document);
    let found = said(&document, "steal");
    assert_eq!((found.weight, number(found, "stolen")), (Weight::Found, 0.12));
    assert!(document.statements.iter().all(|it| it.name != "one-cpu-full"));
    // One CPU without a pause among idle ones; then all of them are full.
    let document = one(&mpstat(&[("0", 0.0, 0.0), ("1", 0.0, 95.0), ("2", 0.0, 97.0)]));
    assert_eq!(said(&document, "steal").weight, Weight::RuledOut);
    assert!(said(&document, "one-cpu-full").title.starts_with("CPU 0 of 3 never had a pause"));
    let document = one(&mpstat(&[("0", 0.0, 0.0), ("1", 0.0, 2.0), ("2", 0.0, 1.0)]));
    assert!(document.statements.iter().all(|it| it.name != "one-cpu-full"));
}

#[test]
fn waiting_threads_are_named_if_they_were_seen_often_enough() {
    let document = one(debian!("pidstat-ht.txt"));
    let open = said(&document, "task-waits");
    assert_eq!(open.weight, Weight::Open, "two rows are too few");
    assert!(open.title.contains("`rustc`") && open.title.contains("2 rows only"), "{}", open.title);
    assert_eq!(open.settle.as_deref(), Some("deburr -d 30 --comm rustc"));
    let row = |s: u32, wait: f64| format!("10:00:0{s} 0 7 1.00 0.00 0.00 {wait:.2} 1.00 0 a b\n");
    let text = |wait: f64| {
        let rows: String = (1..5).map(|s| row(s, wait)).collect();
        format!("10:00:00 UID PID %usr %system %guest %wait %CPU CPU Command\n{rows}")
    };
    let document = one(&text(41.0));
    assert_whole(&document);
    let found = said(&document, "task-waits");
    assert_eq!(found.weight, Weight::Found);
    assert!(found.title.contains("`a b` (pid 7) waits 41 %"), "{}", found.title);
    assert!(found.cannot_say.iter().any(|it| it.contains("other than the main one")));
    assert_eq!(said(&one(&text(1.0)), "task-waits").weight, Weight::RuledOut);
}

#[test]
fn json_and_text_of_the_same_say_the_same() {
    let text = "# iostat -xy 1\n";
    let (mut text, mut json) = (text.to_owned(), String::new());
    for (at, queue) in
        [0.02, 0.02, 7.0, 0.02, 0.02, 0.02, 0.02, 5.0, 0.02, 0.02].into_iter().enumerate()
    {
        let util = if queue > 1.0 { 30.0 } else { 2.0 };
        text +=
            &format!("10:00:{at:02}\nDevice r/s w/s rkB/s wkB/s r_await w_await aqu-sz %util\n");
        text += &format!("sda 0.00 100.00 0.00 400.00 0.00 0.10 {queue:.2} {util:.2}\n\n");
        if at > 0 {
            json += ",\n";
        }
        json += &format!(
            "{{\"timestamp\": \"10:00:{at:02}\", \"disk\": [{{\"disk-device\": \"sda\", \"r/s\": 0, \"w/s\": 100.00, \
             \"wkB/s\": 400.00, \"w_await\": 0.10, \"aqu-sz\": {queue}, \"util\": {util}}}]}}"
        );
    }
    let json = format!("{{\"sysstat\": {{\"hosts\": [{{\"statistics\": [\n{json}\n]}}]}}}}\n");
    let (of_text, of_json) = (one(&text), one(&json));
    assert_whole(&of_json);
    let (of_text, of_json) = (said(&of_text, "device-bursts"), said(&of_json, "device-bursts"));
    assert_eq!(of_text.title, of_json.title);
    assert!(
        of_text.title.contains("2 bursts") && of_text.title.contains("5.0 s apart"),
        "{}",
        of_text.title
    );
    assert_eq!(of_json.numbers[0].source, "f:1-12");
    // Cut off, it says nothing.
    let cut = one(&json[..json.len() - 20]);
    assert!(cut.statements.is_empty());
    assert!(cut.files[0].sections[0].notes[0].contains("cut off"), "{:#?}", cut.files);
    let other = one("{\"a\": 1}\n");
    assert!(other.files[0].sections[0].notes[0].contains("not of sysstat"));
}

#[test]
fn histograms_of_bpftrace_and_per_process() {
    let text = "# runqlat.bt\nAttaching 5 probes...\nTracing CPU scheduler... Hit Ctrl-C to end.\n^C\n\n@usecs:\n\
                [0]                  233 |@@@@@@@@@@@@@                |\n\
                [1]                  836 |@@@@                         |\n\
                [2, 4)               971 |@@@@                         |\n\
                [512, 1K)              0 |                             |\n\
                [1K, 2K)              40 |@                            |\n\
                [16K, 32K)            21 |@                            |\n";
    let document = one(text);
    assert_whole(&document);
    assert_eq!(sections(&document), [("runqlat", "1 histogram")]);
    let found = said(&document, "tail-heavy");
    assert_eq!(found.weight, Weight::Found);
    assert_eq!(number(found, "waits for a CPU"), 2101.0);
    assert!(found.title.contains("1.0 ms and more"), "{}", found.title);
    // A key in the map; a map whose name has no unit is none that can be read.
    let by_pid = one(&text.replace("@usecs:", "@usecs[1234, java]:"));
    assert!(
        said(&by_pid, "tail-heavy").title.contains("of `1234, java`"),
        "{:#?}",
        by_pid.statements
    );
    let no_unit = one(&text.replace("@usecs:", "@:"));
    assert!(no_unit.statements.is_empty() && no_unit.files[0].unread_lines == 7, "{no_unit:#?}");
    // bcc, for each process.
    let text = "$ biolatency -D -m\nTracing block device I/O... Hit Ctrl-C to end.\n\ndisk = 'sda'\n\
                msecs : count distribution\n 0 -> 1 : 700 |***|\n 64 -> 127 : 60 |*|\n\ndisk = 'sdb'\n\
                msecs : count distribution\n 0 -> 1 : 3 |***|\n";
    let document = one(text);
    assert_whole(&document);
    assert_eq!(sections(&document), [("biolatency", "2 histograms")]);
    let found: Vec<_> =
        document.statements.iter().filter(|it| it.weight == Weight::Found).collect();
    assert!(found.len() == 1 && found[0].title.contains("of `disk = 'sda'`"), "{found:#?}");
}

#[test]
fn long_waits_name_who_ran_before() {
    let header = "Tracing run queue latency higher than 10000 us\nTIME     COMM             TID           LAT(us) PREV COMM        PREV TID\n";
    let rows: String =
        (0..6).map(|s| format!("04:16:3{s} java 12924 127{s}9 stress 77\n")).collect();
    let document = one(&format!("{header}{rows}[...]\n"));
    assert_whole(&document);
    let found = said(&document, "long-waits");
    assert_eq!(found.weight, Weight::Found);
    assert!(found.title.starts_with("`java` waited 6 times"), "{}", found.title);
    assert_eq!(number(found, "ran last before: `stress`"), 1.0);
    // Few are chance; and what ran last need not have run for all of it.
    let few = one(&format!("{header}{}", &rows[..rows.len() / 2]));
    assert_eq!(said(&few, "long-waits").weight, Weight::Open);
    assert!(found.cannot_say.iter().any(|it| it.contains("behind many")));
}

#[test]
fn calls_of_two_runs_are_compared() {
    let good = debian!("strace-c.txt");
    assert_eq!(said(&one(good), "system-calls").weight, Weight::Fact);
    let bad = good.replace(
        "0.000029           4         7           read",
        "5.400000         270     20144           read",
    );
    assert_ne!(bad, good);
    let document = read(&[("good", good), ("bad", &bad)], Given::default());
    assert_whole(&document);
    let found: Vec<_> =
        document.statements.iter().filter(|it| it.weight == Weight::Found).collect();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].title.contains("20 144 calls of `read`, against 7 in good"),
        "{}",
        found[0].title
    );
    // Twice as many are no other behaviour.
    let twice = good.replace("        30           mmap", "        60           mmap");
    let document = read(&[("good", good), ("bad", &twice)], Given::default());
    assert!(document.statements.iter().all(|it| it.weight == Weight::Fact), "{document:#?}");
}

#[test]
fn counters_are_of_the_time_between_two_captures() {
    let once = "usage_usec 9000000\nuser_usec 1\nsystem_usec 1\nnr_periods 1000\nnr_throttled 400\nthrottled_usec 5000000\n";
    // Since the cgroup was made: nobody knows when.
    assert_eq!(said(&one(once), "throttled").weight, Weight::Open);
    let calm = once.replace("nr_periods 1000", "nr_periods 1100");
    let document = one(&format!("$ cat cpu.stat\n{once}\n{calm}"));
    assert_whole(&document);
    assert_eq!(said(&document, "throttled").weight, Weight::RuledOut, "long ago is not now");
    let worse = calm.replace("nr_throttled 400", "nr_throttled 480");
    let document = one(&format!("{once}\n{worse}"));
    let found = said(&document, "throttled");
    assert_eq!(found.weight, Weight::Found);
    assert_eq!(number(found, "periods in which it was stopped"), 80.0);

    let text = "$ cat /proc/7/schedstat\n1000000 9000000 10\n$ cat /proc/self/other\n1 2 3\n";
    let document = one(text);
    assert_eq!(document.files[0].unread_lines, 1, "three numbers are anything: {document:#?}");
    assert_eq!(said(&document, "run-delay").weight, Weight::Open);
    let document = one("==> /proc/7/schedstat <==\n1000000 9000000 10\n2000000 9010000 12\n");
    assert_eq!(said(&document, "run-delay").weight, Weight::RuledOut);
}

#[test]
fn pressure_names_its_resource() {
    let text = "some avg10=21.30 avg60=9.00 avg300=1.00 total=144163800\nfull avg10=3.00 avg60=0.00 avg300=0.00 total=9761232\n";
    for (head, tail) in [
        ("$ cat /proc/pressure/io\n", ""),
        ("==> /proc/pressure/io <==\n", ""),
        ("", "/proc/pressure/io:"),
    ] {
        let text: String = text.lines().map(|line| format!("{tail}{line}\n")).collect();
        let document = one(&format!("{head}{text}"));
        assert_whole(&document);
        let found = said(&document, "pressure");
        assert!(found.title.contains("21.3 % of 10 s some task waited for io"), "{}", found.title);
        assert_eq!(found.weight, Weight::Found);
    }
    assert!(said(&one(text), "pressure").cannot_say.iter().any(|it| it.contains("which resource")));
}

#[test]
fn facts_of_a_host() {
    let policy = |most: &str| {
        format!(
            "$ cpupower frequency-info\nanalyzing CPU 0:\n  driver: acpi-cpufreq\n  hardware limits: 1.20 GHz - 3.50 GHz\n  \
             available cpufreq governors: performance powersave\n  current policy: frequency should be within 1.20 GHz and {most}.\n\
             {:18}The governor \"performance\" may decide which speed to use\n{:18}within this range.\n",
            "", ""
        )
    };
    let document = one(&policy("2.00 GHz"));
    assert_whole(&document);
    let found = said(&document, "frequency");
    assert_eq!(found.weight, Weight::Found);
    assert!(found.title.contains("2.00 GHz of the 3.50 GHz"), "{}", found.title);
    assert_eq!(said(&one(&policy("3.50 GHz")), "frequency").weight, Weight::Fact);

    let modules = "Module                  Size  Used by\npcc_cpufreq            16384  0\nacpi_cpufreq 32768  0\next4 1 2 mbcache,jbd2\n";
    let document = one(modules);
    assert_whole(&document);
    assert_eq!(said(&document, "modules").weight, Weight::Open);
    let alone = modules.replace("pcc_cpufreq ", "other ");
    assert_eq!(said(&one(&alone), "modules").weight, Weight::Fact);

    let document = one(
        "$ cat /proc/cmdline\nBOOT_IMAGE=/vmlinuz root=/dev/sda2 ro processor.max_cstate=0 quiet\n",
    );
    assert_whole(&document);
    let found = said(&document, "kernel-parameters");
    assert_eq!(found.numbers[0].note.as_deref(), Some("0"));
    assert_eq!(found.numbers.len(), 1, "{found:#?}");
}
