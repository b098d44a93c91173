// The file of the examples: w, F32 of shape [3, 2], and b, U8 of shape [2].
{
    let header = r#"{"w":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},"b":{"dtype":"U8","shape":[2],"data_offsets":[24,26]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    for x in 0..6 {
        bytes.extend_from_slice(&(x as f32).to_le_bytes());
    }
    bytes.extend_from_slice(&[8, 9]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}
