//! A header as a tree of JSON tokens that need not be valid: what generation builds and mutation damages.

/// A value. Scalars and keys are kept as the bytes that spell them, so that any spelling can stand anywhere.
#[derive(Clone)]
pub enum Node {
    Scalar(Vec<u8>),
    Array(Vec<Node>),
    Object(Vec<(Vec<u8>, Node)>),
}

impl Node {
    pub fn scalar(token: impl AsRef<[u8]>) -> Node {
        Node::Scalar(token.as_ref().to_vec())
    }

    pub fn numbers(values: &[u64]) -> Node {
        Node::Array(values.iter().map(|v| Node::scalar(v.to_string())).collect())
    }

    /// How many values there are in it, itself included.
    pub fn count(&self) -> usize {
        1 + match self {
            Node::Scalar(_) => 0,
            Node::Array(items) => items.iter().map(Node::count).sum(),
            Node::Object(pairs) => pairs.iter().map(|(_, v)| v.count()).sum(),
        }
    }

    /// The i-th of them, depth first.
    pub fn at(&mut self, mut i: usize) -> &mut Node {
        if i == 0 {
            return self;
        }
        i -= 1;
        let children: Vec<&mut Node> = match self {
            Node::Scalar(_) => Vec::new(),
            Node::Array(items) => items.iter_mut().collect(),
            Node::Object(pairs) => pairs.iter_mut().map(|(_, v)| v).collect(),
        };
        for child in children {
            let n = child.count();
            if i < n {
                return child.at(i);
            }
            i -= n;
        }
        unreachable!("a tree has no such value")
    }

    /// Its bytes, with what `space` gives between tokens.
    pub fn write(&self, out: &mut Vec<u8>, space: &mut dyn FnMut(&mut Vec<u8>)) {
        space(out);
        match self {
            Node::Scalar(token) => out.extend_from_slice(token),
            Node::Array(items) => {
                out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    item.write(out, space);
                }
                out.push(b']');
            }
            Node::Object(pairs) => {
                out.push(b'{');
                for (i, (key, value)) in pairs.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    space(out);
                    out.extend_from_slice(key);
                    space(out);
                    out.push(b':');
                    value.write(out, space);
                }
                out.push(b'}');
            }
        }
        space(out);
    }
}
