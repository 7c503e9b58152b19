//! Pure: no IO, no clock. Query strings, strictly: each key at most once, only known keys.

/// Parameters of one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Splits and decodes. Errors are sentences for the caller.
    pub(super) fn parse(text: Option<&str>) -> Result<Query, String> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in text.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let (key, value) = (decode(key)?, decode(value)?);
            if pairs.iter().any(|(k, _)| *k == key) {
                return Err(format!("`{key}` is given twice"));
            }
            pairs.push((key, value));
        }
        Ok(Query(pairs))
    }

    /// Refuses keys that are not in `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.0.iter().find(|(k, _)| !known.contains(&k.as_str())) {
            Some((k, _)) => Err(format!("unknown parameter `{k}`; known here: {}", known.join(", "))),
            None => Ok(()),
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The value of a key that must be there.
    pub(super) fn need(&self, key: &str, example: &str) -> Result<&str, String> {
        self.get(key)
            .filter(|v| !v.is_empty())
            .ok_or_else(|| format!("`{key}` is missing; example: {example}"))
    }
}

fn decode(text: &str) -> Result<String, String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'+' => b' ',
            b'%' => {
                let (hi, lo) = (bytes.next().and_then(hex), bytes.next().and_then(hex));
                let (Some(hi), Some(lo)) = (hi, lo) else {
                    return Err("broken %-escape in the query".into());
                };
                hi << 4 | lo
            }
            other => other,
        });
    }
    String::from_utf8(out).map_err(|_| "the query is not UTF-8".into())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

/// Escapes a value for a query string.
pub(super) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_nonsense_refused() {
        let q = Query::parse(Some("for=500ms&reason=gc+or%20so%2e&flag")).unwrap();
        assert_eq!(q.get("reason"), Some("gc or so."));
        assert_eq!(q.get("flag"), Some(""));
        assert!(q.need("flag", "x").is_err() && q.need("none", "x").is_err());
        assert!(q.only(&["for", "reason"]).unwrap_err().contains("`flag`"));
        for bad in ["a=1&a=2", "a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert!(Query::parse(Some(bad)).is_err(), "{bad}");
        }
        assert_eq!(Query::parse(None).unwrap(), Query(vec![]));
    }

    proptest::proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in ".{0,40}") {
            proptest::prop_assert_eq!(decode(&encode(&text)).unwrap(), text);
        }

        #[test]
        fn any_text_is_an_answer_and_no_panic(text in ".{0,80}") {
            let _ = Query::parse(Some(&text));
        }
    }
}
