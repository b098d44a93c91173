//! A model that a URL names, from a server of this test's own.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

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
