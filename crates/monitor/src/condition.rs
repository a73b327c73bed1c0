//! What is asked of values: of one alone, and of several together.

use crate::name::Name;
use std::sync::Arc;

/// How two numbers lie to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `=`
    Equal,
    /// `!=`
    Differs,
    /// `>=`
    AtLeast,
    /// `>`
    More,
}

impl Order {
    /// Whether `one` lies so to `other`.
    pub fn holds(self, one: i128, other: i128) -> bool {
        match self {
            Order::Less => one < other,
            Order::AtMost => one <= other,
            Order::Equal => one == other,
            Order::Differs => one != other,
            Order::AtLeast => one >= other,
            Order::More => one > other,
        }
    }

    /// What is true of two numbers where this is not.
    pub fn negated(self) -> Order {
        match self {
            Order::Less => Order::AtLeast,
            Order::AtMost => Order::More,
            Order::Equal => Order::Differs,
            Order::Differs => Order::Equal,
            Order::AtLeast => Order::Less,
            Order::More => Order::AtMost,
        }
    }
}

/// The number that a value is in decimal, from -2^63 to 2^63 - 1.
pub fn number(value: Option<&[u8]>) -> Option<i64> {
    // The longest has 20 bytes; a megabyte is none, and need not be looked at.
    value.filter(|value| value.len() <= 20).and_then(|value| std::str::from_utf8(value).ok()).and_then(|text| text.parse().ok())
}

/// What a value is compared with for being the same.
#[derive(Clone, PartialEq, Debug)]
pub enum Constant {
    /// No value: the key was never written, or was deleted, or has expired.
    Absent,
    /// A number.
    Number(i64),
    /// Bytes.
    Text(Name),
}

impl Constant {
    fn is(&self, value: Option<&[u8]>, bindings: &[Arc<[u8]>]) -> bool {
        match self {
            Constant::Absent => value.is_none(),
            Constant::Number(constant) => number(value) == Some(*constant),
            Constant::Text(text) => value.is_some_and(|value| text.is(value, bindings)),
        }
    }
}

/// What is asked of one value.
#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    /// It is this.
    Is(Constant),
    /// It is not this; what is absent is no number and no text.
    IsNot(Constant),
    /// So many times the number that it is lies so to a number. Never true of what is no number.
    Number(i64, Order, i128),
}

impl Test {
    pub(crate) fn holds(&self, value: Option<&[u8]>, bindings: &[Arc<[u8]>]) -> bool {
        match self {
            Test::Is(constant) => constant.is(value, bindings),
            Test::IsNot(constant) => !constant.is(value, bindings),
            Test::Number(times, order, bound) => number(value).is_some_and(|value| order.holds(i128::from(*times) * i128::from(value), *bound)),
        }
    }
}

/// What is asked of several values together, by their numbers in a clause.
#[derive(Clone, PartialEq, Debug)]
pub enum Together {
    /// The sum of so many times each number lies so to a number. Never true if one is no number.
    Sum(Vec<(i64, usize)>, Order, i128),
    /// They are the same, or they are not; as numbers if both are numbers.
    Same(usize, usize, bool),
}

impl Together {
    pub(crate) fn holds(&self, value: impl Fn(usize) -> Option<Vec<u8>>) -> bool {
        match self {
            Together::Sum(parts, order, bound) => {
                let mut sum = 0i128;
                for (times, of) in parts {
                    let Some(number) = number(value(*of).as_deref()) else { return false };
                    // At most 2^8 parts of at most 2^126: bounded where the expression is read.
                    sum = sum.saturating_add(i128::from(*times) * i128::from(number));
                }
                order.holds(sum, *bound)
            }
            Together::Same(one, other, same) => {
                let (one, other) = (value(*one), value(*other));
                let equal = match (number(one.as_deref()), number(other.as_deref())) {
                    (Some(one), Some(other)) => one == other,
                    _ => one == other,
                };
                equal == *same
            }
        }
    }
}
