//! A model that a URL names, from a server of this test's own.

mod support;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use support::*;

/// Answers a range of `bytes` on each connection, until one asks for nothing. What was asked for.
fn serve(listener: &TcpListener, bytes: &[u8]) -> Vec<String> {
    let mut asked = Vec::new();
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let head: Vec<_> =
            lines.take_while(|line| !line.is_empty()).map(|line| line.to_ascii_lowercase()).collect();
        let Some(range) = head.iter().find_map(|line| line.strip_prefix("range: bytes=")) else {
            return asked;
        };
        let answer = if head[0].starts_with("get /model.safetensors?sig=hidden ") {
            let (first, last) = range.split_once('-').unwrap();
            let (first, last) = (first.parse().unwrap(), last.parse::<usize>().unwrap().min(bytes.len() - 1));
            let body = &bytes[first..=last];
            let fields = format!("content-range: bytes {first}-{last}/{}\r\netag: \"1\"", bytes.len());
            let head = format!("HTTP/1.1 206 Partial Content\r\n{fields}\r\ncontent-length: {}", body.len());
            [format!("{head}\r\nconnection: close\r\n\r\n").as_bytes(), body].concat()
        } else {
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec()
        };
        asked.push(range.to_owned());
        stream.write_all(&answer).unwrap();
    }
}

/// Ends the server, also where the test fails.
struct Ends(SocketAddr);

impl Drop for Ends {
    fn drop(&mut self) {
        drop(TcpStream::connect(self.0));
    }
}

/// Whether URLs can be read: libst-remote.so.2 lies beside the library, or is compiled in with it.
fn has_remote() -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let library = maps.split_whitespace().find(|word| word.contains("/libst.so.2"));
    library
        .map_or(cfg!(feature = "remote"), |path| Path::new(path).with_file_name("libst-remote.so.2").exists())
}

#[test]
fn it_is_read_where_it_lies() {
    let mut random = Random::new(21);
    let sample = |shape: &[usize], random: &mut Random| Sample::new(safetensors::Dtype::U8, shape, random);
    let samples = [("long", &[3, 200_000][..]), ("short", &[9][..])];
    let model = Model::new(
        samples.map(|(name, shape)| (name.to_owned(), sample(shape, &mut random))).into(),
        Default::default(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let bytes = model.bytes();
    let asked = thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, &bytes));
        let ends = Ends(address);
        let file = match File::open(format!("http://me:hidden@{address}/model.safetensors?sig=hidden")) {
            Err(e) if !has_remote() && e.message().contains("libst-remote.so.2") => return None,
            opened => opened.unwrap(),
        };
        let told = format!("{file:?}");
        assert!(
            told.contains(&format!("\"http://{address}/model.safetensors\"")) && !told.contains("hidden"),
            "{told}"
        );
        for (name, sample) in &model.samples {
            assert_eq!(file.read(name).unwrap(), sample.data);
            assert_eq!(file.view_owned(name).unwrap().data(), sample.data);
        }
        file.load(None).unwrap();
        let error = File::open(format!("http://{address}/none.safetensors")).unwrap_err();
        assert_eq!(error.status(), Status::NoFile, "{error}");
        drop((file, ends));
        Some(server.join().unwrap())
    });
    if let Some(asked) = asked {
        assert_eq!(asked[0], "0-262143");
        assert!(asked.len() > 2, "{asked:?}");
    }
}

/// Which shards were asked for, those that none came beside, and that there is another.
type Asked = (Mutex<HashSet<String>>, Condvar);

/// Answers one request for the index, or for a shard, which has a tensor of its number: as soon as three shards are asked
/// for.
fn serve_shards(mut stream: TcpStream, asked: &Asked) {
    let lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let body = match head[0].split(' ').nth(1).and_then(|path| path.strip_prefix("/m-")) {
        Some(number) => {
            await_others(number, asked);
            let form = r#"{"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}"#;
            let header = format!(r#"{{"t{number}": {form}}}"#);
            [&header.len().to_le_bytes(), header.as_bytes(), number.as_bytes()].concat()
        }
        None => br#"{"metadata": {}, "weight_map": {"t0": "m-0", "t1": "m-1", "t2": "m-2", "t3": "m-3"}}"#
            .to_vec(),
    };
    let fields = format!("content-range: bytes 0-{}/{}\r\netag: \"1\"", body.len() - 1, body.len());
    let head = format!("HTTP/1.1 206 Partial Content\r\n{fields}\r\ncontent-length: {}", body.len());
    // A client that asked again may have gone.
    let _ = stream.write_all(&[format!("{head}\r\nconnection: close\r\n\r\n").as_bytes(), &body].concat());
}

fn await_others(number: &str, (shards, news): &Asked) {
    let mut shards = shards.lock().unwrap();
    shards.insert(number.to_owned());
    news.notify_all();
    let waited = news.wait_timeout_while(shards, Duration::from_secs(30), |shards| shards.len() < 3);
    let (mut shards, waited) = waited.unwrap();
    if waited.timed_out() {
        shards.insert(format!("{number} alone"));
    }
}

/// A file of shards that are served so.
fn with_shards(test: impl FnOnce(&File, &Asked)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    thread::scope(|scope| {
        scope.spawn(|| loop {
            let (stream, _) = listener.accept().unwrap();
            if stream.peek(&mut [0]).unwrap_or(0) == 0 {
                return;
            }
            scope.spawn(|| serve_shards(stream, &asked));
        });
        let _ends = Ends(address);
        let file = match File::open(format!("http://{address}/model.safetensors.index.json")) {
            Err(e) if !has_remote() && e.message().contains("libst-remote.so.2") => return,
            opened => opened.unwrap(),
        };
        test(&file, &asked);
    });
}

/// Does the call open the shards that it needs, and no others, side by side?
fn opens_side_by_side(call: fn(&File, &[&str]) -> Result<()>) {
    with_shards(|file, (shards, _)| {
        call(file, &["t3", "t1", "t2"]).unwrap();
        assert_eq!(*shards.lock().unwrap(), ["1", "2", "3"].map(str::to_owned).into());
    });
}

#[test]
fn shards_of_tensors_that_are_loaded_by_name_are_opened_side_by_side() {
    opens_side_by_side(|file, names| file.load(Some(names)));
}

#[test]
fn shards_of_tensors_that_are_looked_up_by_name_are_opened_side_by_side() {
    opens_side_by_side(|file, names| {
        let tensors = file.tensors_by_name(names)?;
        let mut bytes: Vec<_> = tensors.iter().map(|tensor| vec![0; tensor.data_len()]).collect();
        file.read_many(tensors.iter().zip(&mut bytes).map(|(tensor, to)| tensor.request(to)))?;
        assert_eq!(bytes.concat(), b"312");
        Ok(())
    });
}

#[test]
fn shards_of_tensors_that_are_prefetched_by_name_are_opened_side_by_side() {
    opens_side_by_side(|file, names| file.prefetch(Some(names)));
}

#[test]
fn the_progress_of_a_call_ends_its_wait_for_a_shard() {
    let calls: [fn(&File) -> Result<()>; 2] = [
        |file| file.prefetch_with(Some(&["t1"]), |_| ControlFlow::Break(())),
        |file| LoadOptions::new().progress(|_| ControlFlow::Break(())).load(file, Some(&["t1"])),
    ];
    for call in calls {
        with_shards(|file, (shards, news)| {
            assert_eq!(call(file).unwrap_err().status(), Status::Cancelled);
            let mut shards = shards.lock().unwrap();
            assert!(!shards.contains("1 alone"), "the call went on until the shard came");
            shards.extend(["2", "3"].map(str::to_owned)); // the server waits no longer
            news.notify_all();
        });
    }
}
