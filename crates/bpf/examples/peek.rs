//! scratch
use deburr_bpf::plan::{Needs, plan};
use deburr_bpf::sched::*;
fn mono() -> u64 { let mut t: libc::timespec = unsafe{std::mem::zeroed()}; unsafe{libc::clock_gettime(libc::CLOCK_MONOTONIC,&mut t)}; t.tv_sec as u64*1_000_000_000+t.tv_nsec as u64 }
fn main() {
    let f = deburr_bpf::facts::facts();
    eprintln!("{f:?}");
    let p = plan(&f, Needs{threads:300,cgroup_v2:false,quota_in_use:true}).unwrap();
    let t0=std::time::Instant::now();
    let mut probe = match SchedProbe::open(&p, 2) { Ok(p)=>p, Err(e)=>{eprintln!("{e}");std::process::exit(1)} };
    eprintln!("attach {:?}", t0.elapsed());
    let c = probe.clock().unwrap();
    let mut scan = ThreadScan::begin(&probe, c.at(mono()));
    let h0 = probe.host_totals(c.at(mono()));
    let mut tl = Timeline::begin(&probe);
    let mut bl = Blame::default();
    let ss = |tg: u32, t: u32| -> Option<(u64,u64)> { let x = std::fs::read_to_string(format!("/proc/{tg}/task/{t}/schedstat")).ok()?; let v: Vec<u64> = x.split_whitespace().filter_map(|y| y.parse().ok()).collect(); Some((v[0],v[1])) };
    let mut prev: std::collections::HashMap<u32,(u64,u64)> = Default::default();
    for e in std::fs::read_dir("/proc").unwrap() { if let Ok(p) = e.unwrap().file_name().to_string_lossy().parse::<u32>() { if let Ok(d)=std::fs::read_dir(format!("/proc/{p}/task")) { for t in d { let t: u32 = t.unwrap().file_name().to_string_lossy().parse().unwrap(); if let Some(x)=ss(p,t){prev.insert(t,x);} } } } }
    let secs: u64 = std::env::args().nth(1).and_then(|s|s.parse().ok()).unwrap_or(3);
    for _ in 0..secs {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let e = probe.end_epoch();
        let now = probe.clock().unwrap().at(mono());
        let t=std::time::Instant::now();
        let mut v=vec![];
        scan.look(&probe, now, |d| v.push(d.clone()));
        let el=t.elapsed();
        let b = bl.of_epoch(&probe, e);
        for d in &v { if let Some(n)=ss(d.tgid,d.tid) { let o = prev.insert(d.tid,n).unwrap_or((0,0)); let (r,q)=((n.0-o.0) as f64/1e6,(n.1-o.1) as f64/1e6); let (mr,mq)=(d.states_ns[0] as f64/1e6,(d.states_ns[1]+d.states_ns[2]) as f64/1e6); if (r-mr).abs()>25. || (q-mq).abs()>40. { println!("slot {:?} MISMATCH {}/{} sched run {r:.1} delay {q:.1} ours {mr:.1} {mq:.1} sw {}", d.slot, d.tid,d.tgid,d.switches);} } }
        v.sort_by_key(|d| std::cmp::Reverse(d.states_ns[1]));
        println!("scan {el:?} threads {} torn {}", v.len(), scan.torn);
        for d in v.iter().take(12) {
            let s: u64 = d.states_ns.iter().sum();
            println!("{:>6}/{:<6} {:16} wall {:.4} sum% {:.3} run {:.1} q {:.1} thr {:.1} slp {:.1} io {:.1} max {:.2}ms wk {:.2}ms sw {} dead {} cg {}", d.tid,d.tgid,String::from_utf8_lossy(&d.comm).trim_end_matches('\0'), d.wall_ns as f64/1e9, s as f64*100./d.wall_ns as f64, d.states_ns[0] as f64/1e7,d.states_ns[1] as f64/1e7,d.states_ns[2] as f64/1e7,d.states_ns[3] as f64/1e7,d.states_ns[4] as f64/1e7, d.wait_max_ns as f64/1e6, d.wakeup_latency_ns as f64/1e6, d.switches,d.dead,d.cgroup_id);
            let q: u64 = b.iter().filter(|((x,_),_)| *x==d.tgid).map(|x|*x.1).sum();
            let mut top: Vec<_> = b.iter().filter(|((x,_),_)| *x==d.tgid).collect(); top.sort_by_key(|x| std::cmp::Reverse(*x.1)); top.truncate(4);
            println!("      blame sum {:.1}% of s; {:?}", q as f64/1e7, top);
        }
        for cpu in 0..2 { let mut n=0; let mut idle=0; tl.read(&probe,cpu,|r| {n+=1; if r.tid==69||r.tid==75 {print!("[{} {}us q{}us] ",r.tid,(r.end_ns-r.start_ns)/1000,r.queued_ns/1000)}; if r.tid==0 {idle+=r.end_ns-r.start_ns}}); print!("cpu{cpu} runs {n} idle {}ms overrun {} ", idle/1000000, tl.overrun); }
        println!("lost {:?}", probe.lost());
    }
    let h1 = probe.host_totals(probe.clock().unwrap().at(mono()));
    println!("{h0:?}\n{h1:?}\nmap {} runs {:?}", probe.map_bytes(), probe.run_time());
}
