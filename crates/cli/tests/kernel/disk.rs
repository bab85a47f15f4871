// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks for tests: a loop device over a file, which can be partitioned, formatted and mounted. Dropping the `Disk`
//! undoes all of it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A loop device with its partitions and mounts, all removed on drop.
#[derive(Debug)]
pub(crate) struct Disk {
    dir: tempfile::TempDir,
    /// `/dev/loopN`
    pub(crate) device: String,
    mounted: Vec<PathBuf>,
    partitions: Vec<u32>,
    server: Option<Server>,
}

/// The lab's slow disk (`deburr lab-worker disk`): a process that serves a FUSE filesystem, mounted at `at`, whose file
/// `disk` backs the loop device.
#[derive(Debug)]
struct Server {
    process: Child,
    at: PathBuf,
}

impl Disk {
    /// Makes a loop device of `mib` MiB without a filesystem. `Err` = why that is not possible here.
    pub(crate) fn new(mib: u64) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = dir.path().join("image");
        Self::on(dir, &image, mib)
    }

    /// Like [`Self::new`], with a new backing file at `image`.
    pub(crate) fn at(image: &Path, mib: u64) -> Result<Self, String> {
        Self::on(tempfile::tempdir().map_err(|error| error.to_string())?, image, mib)
    }

    fn on(dir: tempfile::TempDir, image: &Path, mib: u64) -> Result<Self, String> {
        let file = std::fs::File::create(image).map_err(|error| error.to_string())?;
        file.set_len(mib << 20).map_err(|error| error.to_string())?;
        let out = run("losetup", &["--find", "--show", &image.to_string_lossy()])?;
        let device = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        Ok(Self { dir, device, mounted: Vec::new(), partitions: Vec::new(), server: None })
    }

    /// Makes a disk of `mib` MiB in memory, which delays each request once [`Self::take_us`] was called.
    pub(crate) fn slow(mib: u64) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let at = dir.path().join("fuse");
        std::fs::create_dir(&at).map_err(|error| error.to_string())?;
        let mut process = Command::new(env!("CARGO_BIN_EXE_deburr"))
            .args(["lab-worker", "disk", "--bytes-per-us=400", &format!("--size-mib={mib}")])
            .arg(format!("--at={}", at.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut ready = String::new();
        if let Some(stdout) = &mut process.stdout {
            let _ = BufReader::new(stdout).read_line(&mut ready);
        }
        let server = Server { process, at };
        if ready.trim() != "ready" {
            return Err("the lab's disk does not run here".into());
        }
        let image = server.at.join("disk");
        let out = run("losetup", &["--find", "--show", &image.to_string_lossy()])?;
        let device = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        let server = Some(server);
        Ok(Self { dir, device, mounted: Vec::new(), partitions: Vec::new(), server })
    }

    /// Sets the service time of each request, in microseconds, from now on; 0 = as fast as memory. Without effect on a
    /// disk that is not [`Self::slow`].
    pub(crate) fn take_us(&mut self, us: u64) {
        if let Some(server) = &mut self.server
            && let Some(stdin) = &mut server.process.stdin
        {
            writeln!(stdin, "base_us {us}").unwrap();
        }
    }

    /// Adds partition `number`; `start` and `sectors`, its length, are in sectors of 512 bytes. Returns its device
    /// (`/dev/loopNpM`).
    pub(crate) fn partition(
        &mut self,
        number: u32,
        start: u64,
        sectors: u64,
    ) -> Result<String, String> {
        let [n, start, sectors] = [u64::from(number), start, sectors].map(|n| n.to_string());
        run("addpart", &[&self.device, &n, &start, &sectors])?;
        self.partitions.push(number);
        Ok(format!("{}p{number}", self.device))
    }

    /// Formats and mounts a device. Returns the mount point, whose name contains a space and a newline.
    pub(crate) fn mount(&mut self, device: &str, fs_type: &str) -> Result<PathBuf, String> {
        let mkfs = format!("mkfs.{fs_type}");
        let options: &[&str] = match fs_type {
            "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0"],
            "xfs" => &["-q", "-f"],
            _ => &["-q"],
        };
        run(&mkfs, &[options, &[device]].concat())?;
        let point = self.dir.path().join(format!("mount {}\n", self.mounted.len()));
        std::fs::create_dir(&point).map_err(|error| error.to_string())?;
        run("mount", &["-t", fs_type, device, &point.to_string_lossy()])?;
        self.mounted.push(point.clone());
        Ok(point)
    }

    /// Unmounts all its filesystems.
    pub(crate) fn unmount(&mut self) {
        for point in self.mounted.drain(..) {
            run("umount", &[&point.to_string_lossy()]).unwrap();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.take_us(0);
        for point in &self.mounted {
            let _ = run("umount", &[&point.to_string_lossy()]);
        }
        for number in &self.partitions {
            let _ = run("delpart", &[&self.device, &number.to_string()]);
        }
        let _ = run("losetup", &["-d", &self.device]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", &self.at.to_string_lossy()]);
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Makes a disk of `mib` MiB with one filesystem on the whole device, and mounts it. `Err` = why that is not possible
/// here.
pub(crate) fn mounted(mib: u64, fs_type: &str) -> Result<(Disk, PathBuf), String> {
    let mut disk = Disk::new(mib)?;
    let device = disk.device.clone();
    let point = disk.mount(&device, fs_type)?;
    Ok((disk, point))
}

/// Runs a program; a nonzero exit status is an error, with its standard error.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<Output, String> {
    let out = Command::new(program).args(arguments).output();
    let out = out.map_err(|error| format!("cannot run `{program}`: {error}"))?;
    if out.status.success() {
        return Ok(out);
    }
    Err(format!("`{program} {arguments:?}`: {}", String::from_utf8_lossy(&out.stderr).trim()))
}

/// Device id of the filesystem mounted at `point`, from `/proc/self/mountinfo`.
pub(crate) fn fs_of(point: &Path) -> deburr_core::recording::DevId {
    use std::os::unix::ffi::OsStrExt as _;
    let text = std::fs::read("/proc/self/mountinfo").unwrap();
    let mounts = deburr_core::procfs::mountinfo::parse(&text).unwrap();
    let point = point.as_os_str().as_bytes();
    mounts.iter().find(|mount| mount.mount_point == point).unwrap().fs
}
