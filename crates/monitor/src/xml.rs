//! The paper's XML (Fig. 4): when a predicate is violated, in disjunctive normal form.
//!
//! Seven elements without attributes, and as printed one of them is not closed; so they are read here, and an element ends with the one that it stands in
//! (`docs/decisions/0012-xml-of-predicates.md`).

use crate::condition::{Constant, Test};
use crate::expression::{Atom, MOST_BYTES, MOST_CLAUSES, MOST_IN_CLAUSE, MOST_VARIABLES, Parsed};
use crate::name::Name;

enum Piece<'a> {
    Open(&'a str),
    Close(&'a str),
    Text(String),
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(open) = rest.find('<') else {
            found.push(Piece::Text(unescape(rest)?));
            break;
        };
        if open > 0 {
            found.push(Piece::Text(unescape(&rest[..open])?));
        }
        rest = &rest[open..];
        let skipped = [("<!--", "-->"), ("<?", "?>")].into_iter().find(|(begin, _)| rest.starts_with(begin));
        if let Some((begin, end)) = skipped {
            let length = rest.find(end).ok_or_else(|| format!("`{begin}` without `{end}`"))?;
            rest = &rest[length + end.len()..];
            continue;
        }
        let close = rest.find('>').ok_or("`<` without `>`")?;
        let tag = rest[1..close].trim();
        found.push(match tag.strip_prefix('/') {
            Some(name) => Piece::Close(name.trim()),
            None => Piece::Open(tag),
        });
        rest = &rest[close + 1..];
    }
    Ok(found)
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&'), ("&quot;", '"'), ("&apos;", '\'')];
        let (entity, sign) = known.iter().find(|(entity, _)| rest.starts_with(entity)).ok_or("`&` is written `&amp;`")?;
        out.push(*sign);
        rest = &rest[entity.len()..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Reads `text`. Errors: in words for the user.
pub fn parse(text: &str) -> Result<Parsed, String> {
    if text.len() > MOST_BYTES {
        return Err(format!("a predicate of {} bytes; at most {MOST_BYTES} are read", text.len()));
    }
    let mut parsed = Parsed { variables: Vec::new(), holes: Vec::new(), violations: Vec::new() };
    let mut open: Vec<&str> = Vec::new();
    let (mut name, mut value) = (None, None);
    for piece in pieces(text)? {
        match piece {
            Piece::Open(tag) => {
                let inside = match tag {
                    "predicate" => "",
                    "type" | "conjClause" => "predicate",
                    "id" | "var" => "conjClause",
                    "name" | "value" => "var",
                    _ => return Err(format!("there is no element `{tag}` in a predicate")),
                };
                if open.last().copied().unwrap_or("") != inside {
                    return Err(format!("<{tag}> stands in <{}>", open.last().unwrap_or(&"nothing")));
                }
                if tag == "conjClause" {
                    parsed.violations.push(Vec::new());
                }
                open.push(tag);
            }
            Piece::Close(tag) => {
                if !open.contains(&tag) {
                    return Err(format!("</{tag}> ends nothing"));
                }
                while let Some(ended) = open.pop() {
                    if ended == "var" {
                        add(&mut parsed, name.take(), value.take())?;
                    }
                    if ended == tag {
                        break;
                    }
                }
            }
            Piece::Text(text) => match open.last().copied() {
                Some("name") => name = Some(text.trim().to_owned()),
                Some("value") => value = Some(text.trim().to_owned()),
                Some("type") if !["linear", "semilinear", "conjunctive"].contains(&text.trim()) => {
                    return Err(format!("a predicate of type `{}`; there are linear, conjunctive and semilinear", text.trim()));
                }
                Some("id" | "type") => {}
                _ if text.trim().is_empty() => {}
                _ => return Err(format!("`{}` stands in no element of its own", text.trim())),
            },
        }
    }
    if !open.is_empty() {
        return Err(format!("<{}> is not ended", open.join("> <")));
    }
    if parsed.violations.is_empty() || parsed.violations.len() > MOST_CLAUSES || parsed.violations.iter().any(Vec::is_empty) {
        return Err(format!("a predicate has 1 to {MOST_CLAUSES} conjClauses, and each has a var"));
    }
    Ok(parsed)
}

fn add(parsed: &mut Parsed, name: Option<String>, value: Option<String>) -> Result<(), String> {
    let (Some(name), Some(value)) = (name.filter(|name| !name.is_empty()), value) else { return Err("a var has a name and a value".into()) };
    let name = Name::plain(name.as_bytes());
    let variable = parsed.variables.iter().position(|known| *known == name).unwrap_or_else(|| {
        parsed.variables.push(name);
        parsed.variables.len() - 1
    });
    let constant = value.parse().map_or_else(|_| Constant::Text(Name::plain(value.as_bytes())), Constant::Number);
    let clause = parsed.violations.last_mut().ok_or("a var stands in no conjClause")?;
    clause.push(Atom::One(variable, Test::Is(constant)));
    if parsed.variables.len() > MOST_VARIABLES || clause.len() > MOST_IN_CLAUSE {
        return Err(format!("more than {MOST_VARIABLES} variables, or {MOST_IN_CLAUSE} vars in a conjClause"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As printed: the second var of the first clause is not ended.
    const FIGURE_4: &str = "
        <predicate>
          <type>semilinear</type>
          <conjClause>
            <id>0</id>
            <var>
               <name>x2</name> <value>1</value>
            </var>
            <var>
               <name>y2</name> <value>1</value>
          </conjClause>
          <conjClause>
            <id>1</id>
            <var>
               <name>z2</name> <value>1</value>
            </var>
          </conjClause>
        </predicate>";

    #[test]
    fn the_papers_figure_is_read_as_it_is_printed() {
        let parsed = parse(FIGURE_4).unwrap();
        let same = crate::expression::parse("!((x2 = 1 && y2 = 1) || z2 = 1)", false).unwrap();
        assert_eq!((parsed.variables, parsed.violations), (same.variables, same.violations));
    }

    #[test]
    fn what_is_no_predicate_is_refused() {
        for (from, to) in [
            ("</predicate>", ""),
            ("<name>x2</name>", ""),
            ("<id>0</id>", "0"),
            ("semilinear", "secret"),
            ("<id>1</id>", "<di>1</di>"),
            ("<predicate>", ""),
            ("x2", "x&2"),
            ("<value>1</value>", "<var></var>"),
        ] {
            assert!(parse(&FIGURE_4.replace(from, to)).is_err(), "{from} -> {to}");
        }
        assert!(parse("<predicate></predicate>").is_err());
        assert!(parse("").is_err());
        assert!(parse(&"<predicate>".repeat(10_000)).is_err());
        assert!(parse("<!-- -->").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(pieces in proptest::collection::vec("<predicate>|</predicate>|<conjClause>|</conjClause>|<var>|</var>|<name>x|</name>|<value>1|</value>|&lt;|&|<!--|[<>/a]", 0..20)) {
            let _ = parse(&pieces.concat());
        }
    }
}
