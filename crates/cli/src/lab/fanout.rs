// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service that splits each request into several tasks, like services that query several backends or shards. Its
//! runtime decides how many tasks run at a time: tokio, by `TOKIO_WORKER_THREADS`.

use anyhow::{Context as _, Result};
use std::hint::black_box;
use std::net::Ipv4Addr;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What it is to do.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FanoutArgs {
    /// Port of 127.0.0.1 to listen at
    #[arg(long)]
    port: u16,
    /// Steps of a request, one after the other
    #[arg(long, default_value_t = 4)]
    steps: u32,
    /// Tasks of a step
    #[arg(long, default_value_t = 16)]
    parts: u32,
    /// Multiplications of a task, of about a nanosecond each
    #[arg(long, default_value_t = 100)]
    work: u64,
}

/// Answers every line with the same line once its work is done, for ever.
pub(crate) fn serve(args: &FanoutArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_io()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let address = (Ipv4Addr::LOCALHOST, args.port);
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen at port {}", args.port))?;
        println!("ready");
        loop {
            let (stream, _) = listener.accept().await.context("cannot accept")?;
            tokio::spawn(answer(stream, args.clone()));
        }
    })
}

/// Serves one connection until it ends. A peer that disconnects is not an error.
async fn answer(stream: TcpStream, args: FanoutArgs) {
    // Without this, Nagle's algorithm would delay answers.
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while matches!(stream.read_until(b'\n', &mut line).await, Ok(read) if read > 0) {
        for _ in 0..args.steps {
            let work = args.work;
            let task = |part: u32| tokio::spawn(async move { compute(part.into(), work) });
            let tasks: Vec<_> = (0..args.parts).map(task).collect();
            for task in tasks {
                let _ = task.await;
            }
        }
        if stream.write_all(&line).await.is_err() {
            return;
        }
        line.clear();
    }
}

fn compute(seed: u64, work: u64) -> u64 {
    let mut number = seed;
    for _ in 0..work {
        number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    number
}
