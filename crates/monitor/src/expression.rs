//! The expression language: one line that says what must always be true.
//!
//! `!(lock_a = 1 && lock_b = 1)`, `stock >= 0`, `sum(stock:*) >= 0`, `a + 2*b <= 10`, `state = "open" || owner = absent`, `` `a key with spaces` != 3 ``.

use crate::condition::{Constant, Order, Test, Together};
use crate::name::Name;
use rheostat_core::glob;

/// The longest expression, in bytes.
pub const MOST_BYTES: usize = 16 << 10;
/// How deep parentheses and negations may be nested.
pub const MOST_NESTING: usize = 64;
/// Variables in one predicate.
pub const MOST_VARIABLES: usize = 256;
/// Clauses of its negation, and what one of them asks.
pub const MOST_CLAUSES: usize = 256;
/// What one clause asks.
pub const MOST_IN_CLAUSE: usize = 64;
/// The longest name, in bytes.
const MOST_NAME: usize = 4096;
/// The greatest factor of what is added up over a pattern: some thousand keys times it stay far from the ends of an `i128`.
const MOST_FACTOR: i64 = 1 << 31;

/// What is asked in a clause, by the numbers of variables.
#[derive(Clone, PartialEq, Debug)]
pub enum Atom {
    /// Of one variable.
    One(usize, Test),
    /// Of several.
    Several(Together),
}

/// An expression, read.
#[derive(Debug)]
pub struct Parsed {
    /// Its variables.
    pub variables: Vec<Name>,
    /// The names of the holes in them.
    pub holes: Vec<String>,
    /// When it is violated: when everything in one of these is true.
    pub violations: Vec<Vec<Atom>>,
}

#[derive(Clone, PartialEq, Debug)]
enum Token<'a> {
    Name(&'a str),
    /// All keys of this pattern, added up.
    Keys(&'a str),
    Text(&'a str),
    Number(i64),
    Sign(&'static str),
    Compare(Order),
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, String> {
    const SIGNS: [(&str, Option<Order>); 17] = [
        ("&&", None),
        ("||", None),
        ("==", Some(Order::Equal)),
        ("!=", Some(Order::Differs)),
        ("<=", Some(Order::AtMost)),
        (">=", Some(Order::AtLeast)),
        ("=", Some(Order::Equal)),
        ("<", Some(Order::Less)),
        (">", Some(Order::More)),
        ("!", None),
        ("(", None),
        (")", None),
        ("+", None),
        ("-", None),
        ("*", None),
        ("≤", Some(Order::AtMost)),
        ("≥", Some(Order::AtLeast)),
    ];
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let quoted = |close: char| {
            let inside = &rest[first.len_utf8()..];
            let end = inside.find(close).ok_or_else(|| format!("a {close} that is not closed"))?;
            Ok::<_, String>((&inside[..end], first.len_utf8() + end + close.len_utf8()))
        };
        let (token, length) = if let '"' | '\'' = first {
            let (inside, length) = quoted(first)?;
            (Token::Text(inside), length)
        } else if first == '`' {
            let (inside, length) = quoted('`')?;
            (Token::Name(inside), length)
        } else if first.is_ascii_digit() {
            let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let digits = &rest[..length];
            (Token::Number(digits.parse().map_err(|_| format!("{digits} is more than 2^63 - 1"))?), length)
        } else if let Some((sign, order)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            (order.map_or(Token::Sign(sign), Token::Compare), sign.len())
        } else {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"_.:/{}@#$".contains(c)).unwrap_or(rest.len());
            if length == 0 {
                return Err(format!("`{first}` means nothing here; a name with such signs stands in `backticks`"));
            }
            match rest[length..].trim_start().strip_prefix('(') {
                Some(inside) if &rest[..length] == "sum" => {
                    let (pattern, after) = keys_of(inside)?;
                    (Token::Keys(pattern), rest.len() - after.len())
                }
                _ => (Token::Name(&rest[..length]), length),
            }
        };
        found.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(found)
}

/// The pattern in `sum(pattern)`, of which `inside` is what follows the parenthesis, and what follows it all.
fn keys_of(inside: &str) -> Result<(&str, &str), String> {
    let inside = inside.trim_start();
    let (pattern, rest) = match inside.strip_prefix('`') {
        Some(quoted) => quoted.split_once('`').ok_or("a ` that is not closed")?,
        None => inside.split_at(inside.find(|c: char| c == ')' || c.is_whitespace() || "`\"'".contains(c)).unwrap_or(inside.len())),
    };
    let rest = rest.trim_start().strip_prefix(')').ok_or("`sum(` takes one pattern of keys and a `)`; one with other signs stands in `backticks`")?;
    match pattern.len() {
        1..=glob::MAX_PATTERN_BYTES => Ok((pattern, rest)),
        length => Err(format!("a pattern of {length} bytes in `sum()`; 1 to {} are read", glob::MAX_PATTERN_BYTES)),
    }
}

enum Expression {
    Not(Box<Expression>),
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Atom(Atom),
}

enum Side {
    Constant(Constant),
    Sum(Vec<(i64, usize)>, i128),
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: usize,
    with_holes: bool,
    variables: Vec<Name>,
    holes: Vec<String>,
}

/// Reads `text`. `with_holes`: braces in names stand for parts of names. Errors: in words for the user.
pub fn parse(text: &str, with_holes: bool) -> Result<Parsed, String> {
    if text.len() > MOST_BYTES {
        return Err(format!("an expression of {} bytes; at most {MOST_BYTES} are read", text.len()));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, with_holes, variables: Vec::new(), holes: Vec::new() };
    if parser.tokens.is_empty() {
        return Err("the expression is empty".into());
    }
    let expression = parser.any()?;
    if let Some(token) = parser.tokens.get(parser.at) {
        return Err(format!("{} stands where `&&`, `||` or the end should", told(token)));
    }
    let violations = clauses(&expression, true)?;
    Ok(Parsed { variables: parser.variables, holes: parser.holes, violations })
}

fn told(token: &Token<'_>) -> String {
    match token {
        Token::Name(name) => format!("`{name}`"),
        Token::Keys(pattern) => format!("`sum({pattern})`"),
        Token::Text(text) => format!("\"{text}\""),
        Token::Number(number) => number.to_string(),
        Token::Sign(sign) => format!("`{sign}`"),
        Token::Compare(_) => "a comparison".into(),
    }
}

impl<'a> Parser<'a> {
    fn next_is(&mut self, sign: &str) -> bool {
        let is = matches!(self.tokens.get(self.at), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(is);
        is
    }

    fn deeper(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MOST_NESTING { Err(format!("nested deeper than {MOST_NESTING}")) } else { Ok(()) }
    }

    fn any(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.all()?];
        while self.next_is("||") {
            parts.push(self.all()?);
        }
        Ok(Expression::Any(parts))
    }

    fn all(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.one()?];
        while self.next_is("&&") {
            parts.push(self.one()?);
        }
        Ok(Expression::All(parts))
    }

    fn one(&mut self) -> Result<Expression, String> {
        if self.next_is("!") {
            self.deeper()?;
            let inside = self.one()?;
            self.depth -= 1;
            return Ok(Expression::Not(Box::new(inside)));
        }
        if self.next_is("(") {
            self.deeper()?;
            let inside = self.any()?;
            self.depth -= 1;
            return if self.next_is(")") { Ok(inside) } else { Err("a parenthesis that is not closed".into()) };
        }
        let left = self.side()?;
        let order = match self.tokens.get(self.at) {
            Some(Token::Compare(order)) => *order,
            Some(token) => return Err(format!("{} stands where a comparison (`=`, `!=`, `<`, `<=`, `>`, `>=`) should", told(token))),
            None => return Err("it ends where a comparison (`=`, `!=`, `<`, `<=`, `>`, `>=`) should stand".into()),
        };
        self.at += 1;
        let right = self.side()?;
        self.atom(left, order, right)
    }

    fn side(&mut self) -> Result<Side, String> {
        let (mut parts, mut constant) = (Vec::new(), 0i128);
        let mut first = true;
        loop {
            let minus = self.next_is("-");
            let sign = if minus { -1i64 } else { 1 };
            match self.tokens.get(self.at).cloned() {
                Some(Token::Text(text)) if first && !minus => {
                    self.at += 1;
                    return Ok(Side::Constant(Constant::Text(self.text(text)?)));
                }
                Some(Token::Name(word @ ("true" | "false"))) if first && !minus => {
                    self.at += 1;
                    return Ok(Side::Constant(Constant::Text(Name::plain(word.as_bytes()))));
                }
                Some(Token::Name("absent")) if first && !minus => {
                    self.at += 1;
                    return Ok(Side::Constant(Constant::Absent));
                }
                Some(Token::Number(number)) => {
                    self.at += 1;
                    if self.next_is("*") {
                        let factor = sign * number;
                        match self.tokens.get(self.at).cloned() {
                            Some(Token::Name(name)) => parts.push((factor, self.variable(name)?)),
                            Some(Token::Keys(pattern)) => parts.push((factor, self.keys(pattern)?)),
                            _ => return Err("a name or a sum should follow `*`".into()),
                        }
                        self.at += 1;
                    } else {
                        constant += i128::from(sign * number);
                    }
                }
                Some(Token::Name(name)) => {
                    self.at += 1;
                    parts.push((sign, self.variable(name)?));
                }
                Some(Token::Keys(pattern)) => {
                    self.at += 1;
                    parts.push((sign, self.keys(pattern)?));
                }
                Some(token) => return Err(format!("{} stands where a name, a number or a text should", told(&token))),
                None => return Err("it ends where a name, a number or a text should stand".into()),
            }
            first = false;
            match self.tokens.get(self.at) {
                Some(Token::Sign("+")) => self.at += 1,
                // Taken as the sign of what follows.
                Some(Token::Sign("-")) => {}
                _ => return Ok(Side::Sum(parts, constant)),
            }
        }
    }

    fn text(&mut self, text: &str) -> Result<Name, String> {
        if self.with_holes { Name::with_holes(text, &mut self.holes) } else { Ok(Name::plain(text.as_bytes())) }
    }

    fn variable(&mut self, name: &str) -> Result<usize, String> {
        if name.is_empty() || name.len() > MOST_NAME {
            return Err(format!("a name of {} bytes; 1 to {MOST_NAME} are read", name.len()));
        }
        let name = self.text(name)?;
        self.known(name)
    }

    fn keys(&mut self, pattern: &str) -> Result<usize, String> {
        if self.with_holes {
            return Err("a sum over keys does not go together with braces that stand for many predicates (--infer)".into());
        }
        self.known(Name::keys(pattern.as_bytes()))
    }

    fn known(&mut self, name: Name) -> Result<usize, String> {
        if let Some(known) = self.variables.iter().position(|known| *known == name) {
            return Ok(known);
        }
        if self.variables.len() == MOST_VARIABLES {
            return Err(format!("more than {MOST_VARIABLES} variables in one predicate"));
        }
        self.variables.push(name);
        Ok(self.variables.len() - 1)
    }
}

impl Parser<'_> {
    /// What `left` and `right` are to each other. Where keys of a pattern are added up, to be equal is to be neither less nor more: only bounds are looked for.
    fn atom(&self, left: Side, order: Order, right: Side) -> Result<Expression, String> {
        let atom = atom(left, order, right)?;
        let of_keys = |atom: &Atom| match atom {
            Atom::One(variable, _) => self.variables[*variable].is_keys(),
            Atom::Several(Together::Sum(parts, ..)) => parts.iter().any(|(_, variable)| self.variables[*variable].is_keys()),
            Atom::Several(Together::Same(one, other, _)) => [one, other].into_iter().any(|variable| self.variables[*variable].is_keys()),
        };
        if !of_keys(&atom) {
            return Ok(Expression::Atom(atom));
        }
        let (parts, order, bound) = match atom {
            Atom::One(variable, Test::Number(times, order, bound)) => (vec![(times, variable)], order, bound),
            Atom::One(variable, Test::Is(Constant::Number(number))) => (vec![(1, variable)], Order::Equal, i128::from(number)),
            Atom::One(variable, Test::IsNot(Constant::Number(number))) => (vec![(1, variable)], Order::Differs, i128::from(number)),
            Atom::Several(Together::Sum(parts, order, bound)) => (parts, order, bound),
            Atom::Several(Together::Same(one, other, same)) => (vec![(1, one), (-1, other)], if same { Order::Equal } else { Order::Differs }, 0),
            Atom::One(..) => return Err("a sum over keys is compared with a number or other sums".into()),
        };
        if let Some((factor, _)) = parts.iter().find(|(factor, _)| factor.unsigned_abs() > MOST_FACTOR as u64) {
            return Err(format!("a factor of {factor} beside a sum over keys; at most {MOST_FACTOR}"));
        }
        let bounded = |order| Expression::Atom(Atom::Several(Together::Sum(parts.clone(), order, bound)));
        match order {
            Order::Equal => Ok(Expression::All(vec![bounded(Order::AtMost), bounded(Order::AtLeast)])),
            Order::Differs => Err("a sum over keys has bounds (`<`, `<=`, `>`, `>=`, `=`); that it differs from a number cannot be watched".into()),
            order => Ok(bounded(order)),
        }
    }
}

fn atom(left: Side, order: Order, right: Side) -> Result<Atom, String> {
    let (variable, constant) = match (left, right) {
        (Side::Sum(left, minus), Side::Sum(right, plus)) => return of_sums(left, order, &right, plus - minus),
        (Side::Constant(constant), Side::Sum(parts, 0)) | (Side::Sum(parts, 0), Side::Constant(constant)) => match parts.as_slice() {
            [(1, variable)] => (*variable, constant),
            _ => return Err("a text, `true`, `false` or `absent` is compared with one variable".into()),
        },
        _ => return Err("a text, `true`, `false` or `absent` is compared with one variable".into()),
    };
    match order {
        Order::Equal => Ok(Atom::One(variable, Test::Is(constant))),
        Order::Differs => Ok(Atom::One(variable, Test::IsNot(constant))),
        _ => Err("only numbers are more or less than each other".into()),
    }
}

/// `left - right` lies so to `bound`.
fn of_sums(left: Vec<(i64, usize)>, order: Order, right: &[(i64, usize)], bound: i128) -> Result<Atom, String> {
    let mut parts: Vec<(i64, usize)> = Vec::new();
    for (times, variable) in left.into_iter().chain(right.iter().map(|(times, variable)| (-times, *variable))) {
        match parts.iter_mut().find(|(_, known)| *known == variable) {
            Some((sum, _)) => *sum = sum.checked_add(times).ok_or("a factor is more than 2^63 - 1")?,
            None => parts.push((times, variable)),
        }
    }
    parts.retain(|(times, _)| *times != 0);
    match (parts.as_slice(), order, i64::try_from(bound)) {
        ([], ..) => Err("a comparison without a variable is always true, or never".into()),
        ([(1, variable)], Order::Equal, Ok(number)) => Ok(Atom::One(*variable, Test::Is(Constant::Number(number)))),
        ([(1, variable)], Order::Differs, Ok(number)) => Ok(Atom::One(*variable, Test::IsNot(Constant::Number(number)))),
        ([(times, variable)], ..) => Ok(Atom::One(*variable, Test::Number(*times, order, bound))),
        ([(1, one), (-1, other)], Order::Equal | Order::Differs, Ok(0)) => Ok(Atom::Several(Together::Same(*one, *other, order == Order::Equal))),
        _ => Ok(Atom::Several(Together::Sum(parts, order, bound))),
    }
}

fn negated(atom: &Atom) -> Atom {
    match atom {
        Atom::One(variable, Test::Is(constant)) => Atom::One(*variable, Test::IsNot(constant.clone())),
        Atom::One(variable, Test::IsNot(constant)) => Atom::One(*variable, Test::Is(constant.clone())),
        Atom::One(variable, Test::Number(times, order, bound)) => Atom::One(*variable, Test::Number(*times, order.negated(), *bound)),
        Atom::Several(Together::Sum(parts, order, bound)) => Atom::Several(Together::Sum(parts.clone(), order.negated(), *bound)),
        Atom::Several(Together::Same(one, other, same)) => Atom::Several(Together::Same(*one, *other, !same)),
    }
}

/// The disjunctive normal form of `expression`, or of its negation.
fn clauses(expression: &Expression, negate: bool) -> Result<Vec<Vec<Atom>>, String> {
    let (parts, all) = match expression {
        Expression::Atom(atom) => return Ok(vec![vec![if negate { negated(atom) } else { atom.clone() }]]),
        Expression::Not(inside) => return clauses(inside, !negate),
        Expression::All(parts) => (parts, !negate),
        Expression::Any(parts) => (parts, negate),
    };
    let too_many = || format!("its negation has more than {MOST_CLAUSES} alternatives; make several predicates of it");
    if !all {
        let mut found = Vec::new();
        for part in parts {
            found.append(&mut clauses(part, negate)?);
            if found.len() > MOST_CLAUSES {
                return Err(too_many());
            }
        }
        return Ok(found);
    }
    let mut found: Vec<Vec<Atom>> = vec![Vec::new()];
    for part in parts {
        let more = clauses(part, negate)?;
        if found.len() * more.len() > MOST_CLAUSES {
            return Err(too_many());
        }
        found = found.iter().flat_map(|one| more.iter().map(move |other| [one.as_slice(), other].concat())).collect();
        if found.iter().any(|clause| clause.len() > MOST_IN_CLAUSE) {
            return Err(format!("more than {MOST_IN_CLAUSE} comparisons that must be true at once"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn violations(text: &str) -> Vec<Vec<Atom>> {
        parse(text, false).unwrap().violations
    }

    fn refused(text: &str) -> String {
        parse(text, false).unwrap_err()
    }

    fn is(variable: usize, number: i64) -> Atom {
        Atom::One(variable, Test::Is(Constant::Number(number)))
    }

    #[test]
    fn what_violates_it() {
        assert_eq!(violations("!(lock_a = 1 && lock_b = 1)"), [[is(0, 1), is(1, 1)]]);
        assert_eq!(violations("!((x = 1 && y == 1) || z=1)"), [vec![is(0, 1), is(1, 1)], vec![is(2, 1)]]);
        assert_eq!(violations("stock >= 0"), [[Atom::One(0, Test::Number(1, Order::Less, 0))]]);
        assert_eq!(violations("0 <= stock"), [[Atom::One(0, Test::Number(-1, Order::More, 0))]]);
        assert_eq!(violations("x != -3"), [[is(0, -3)]]);
        assert_eq!(violations("a + 2*b <= 10 - c"), [[Atom::Several(Together::Sum(vec![(1, 0), (2, 1), (1, 2)], Order::More, 10))]]);
        assert_eq!(violations("a = b"), [[Atom::Several(Together::Same(0, 1, false))]]);
        assert_eq!(violations("!!(a != true)"), [[Atom::One(0, Test::Is(Constant::Text(Name::plain(b"true"))))]]);
        assert_eq!(violations("`a key` = absent || b = 'x'").concat().len(), 2);
        assert_eq!(parse("{bank}alice >= 0", false).unwrap().variables, [Name::plain(b"{bank}alice")]);
    }

    #[test]
    fn keys_of_a_pattern_are_added_up() {
        let sum = |parts: Vec<(i64, usize)>, order, bound| Atom::Several(Together::Sum(parts, order, bound));
        assert_eq!(violations("sum(stock:*) >= 0"), [[sum(vec![(1, 0)], Order::Less, 0)]]);
        assert_eq!(violations("2*sum(`a b *`) - sum (b[0-9]) <= x + 3"), [[sum(vec![(2, 0), (-1, 1), (-1, 2)], Order::More, 3)]]);
        assert_eq!(violations("sum(a:*) = 7"), [[sum(vec![(1, 0)], Order::More, 7)], [sum(vec![(1, 0)], Order::Less, 7)]]);
        assert_eq!(violations("sum(a:*) = sum(b:*)").len(), 2);
        assert_eq!(parse("sum(stock:*) >= 0", false).unwrap().variables, [Name::keys(b"stock:*")]);
        assert_eq!(violations("sum = 3"), [[Atom::One(0, Test::IsNot(Constant::Number(3)))]], "a key can be called so");
    }

    #[test]
    fn holes_are_named_and_stand_in_texts_too() {
        let parsed = parse(r#"!(flag{A}_{B}_{A} = true && turn{A}_{B} = "{A}")"#, true).unwrap();
        assert_eq!((parsed.holes.len(), parsed.variables.len()), (2, 2));
    }

    #[test]
    fn what_is_no_predicate_is_refused_in_words() {
        assert!(refused("").contains("empty"));
        assert!(refused("x").contains("comparison"));
        assert!(refused("x = ").contains("ends"));
        assert!(refused("sum(stock:* >= 0").contains("backticks"));
        assert!(refused("sum() >= 0").contains("0 bytes"));
        assert!(refused(&format!("sum({}*) >= 0", "x".repeat(1024))).contains("1025 bytes"));
        assert!(refused("sum(`stock:*) >= 0").contains("not closed"));
        assert!(refused("sum(stock:*) != 0").contains("differs"));
        assert!(refused("sum(stock:*) = \"x\"").contains("compared with a number"));
        assert!(refused("sum(a:*) <= 2147483649*b").contains("factor"));
        assert!(parse("sum(a:*) >= 0", true).unwrap_err().contains("--infer"));
        assert!(refused("x = 1 y = 2").contains("`y`"));
        assert!(refused("(x = 1").contains("not closed"));
        assert!(refused("x = \"a").contains("not closed"));
        assert!(refused("x < \"a\"").contains("only numbers"));
        assert!(refused("1 = 1").contains("without a variable"));
        assert!(refused("x - x = 1").contains("without a variable"));
        assert!(refused("x = 99999999999999999999").contains("2^63"));
        assert!(refused("x = 1 ; y = 2").contains('`'));
        assert!(refused("é = 1").contains("backticks"));
        assert!(refused(&"x=1&&".repeat(1 << 18)).contains("bytes"));
        assert!(refused(&"(".repeat(10_000)).contains("nested"));
        assert!(refused(&format!("{}x=1", "!".repeat(10_000))).contains("nested"));
        let many = |join: &str, count: usize| (0..count).map(|number| format!("v{number}=1")).collect::<Vec<_>>().join(join);
        assert!(refused(&many("||", 65)).contains("at once"));
        assert!(refused(&many("&&", 257)).contains("alternatives") || refused(&many("&&", 257)).contains("variables"));
        let product = (0..9).map(|number| format!("(a{number}=1&&b{number}=1)")).collect::<Vec<_>>().join("||");
        assert!(refused(&product).contains("alternatives"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-c0-2(){}!&|=<>+*\"' -]{0,40}", holes: bool) {
            let _ = parse(&text, holes);
        }
    }
}
