//! One text that holds all mutants of a file, each behind a switch.

use crate::sites::{Form, Site};
use std::ops::Range;

/// A mutant that is put into a text.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The number that switches it on.
    pub number: u32,
    /// The bytes that it replaces.
    pub range: Range<usize>,
    /// How it stands in the text.
    pub form: Form,
    /// What stands there when it is on.
    pub replacement: String,
}

impl Edit {
    /// The mutant at `site`.
    pub fn new(number: u32, site: &Site) -> Edit {
        Edit { number, range: site.range.clone(), form: site.form, replacement: site.replacement.clone() }
    }
}

/// A text with its mutants.
#[derive(Debug, Default)]
pub struct Rewritten {
    /// The text.
    pub text: String,
    /// Where which mutants stand in it, for what a compiler says of it.
    pub marks: Vec<(Range<usize>, Vec<u32>)>,
}

impl Rewritten {
    /// The mutants at a place of the text: those that stand closest around it.
    pub fn at(&self, place: &Range<usize>) -> Option<&[u32]> {
        let around = self.marks.iter().filter(|(mark, _)| mark.start <= place.start && place.end <= mark.end);
        around.min_by_key(|(mark, _)| mark.len()).map(|(_, numbers)| numbers.as_slice())
    }
}

/// The numbers of those among `edits` that overlap others without lying inside them: they cannot stand in one text.
pub fn crossing(edits: &[Edit]) -> Vec<u32> {
    let cross = |a: &Range<usize>, b: &Range<usize>| a.start < b.start && b.start < a.end && a.end < b.end;
    let mut kept: Vec<&Edit> = Vec::new();
    let mut found = Vec::new();
    for edit in edits {
        if kept.iter().any(|other| cross(&edit.range, &other.range) || cross(&other.range, &edit.range)) {
            found.push(edit.number);
        } else {
            kept.push(edit);
        }
    }
    found
}

/// Puts `edits`, none of which cross, into `source`. `switch` is the path of the function that says whether a mutant is on.
pub fn rewrite(source: &str, edits: &[Edit], switch: &str) -> Rewritten {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    // Statements lie around expressions that are as long.
    edits.sort_by_key(|edit| (edit.range.start, std::cmp::Reverse(edit.range.end), edit.form == Form::Expression, edit.number));
    let mut writer = Writer { source, switch, out: Rewritten::default() };
    writer.write(0..source.len(), &edits);
    writer.out
}

struct Writer<'a> {
    source: &'a str,
    switch: &'a str,
    out: Rewritten,
}

impl Writer<'_> {
    fn push(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    fn write(&mut self, range: Range<usize>, edits: &[&Edit]) {
        let (source, mut from, mut next) = (self.source, range.start, 0);
        while let Some(first) = edits.get(next) {
            let group = edits[next..].iter().take_while(|edit| (&edit.range, edit.form) == (&first.range, first.form)).count();
            let (group, inner) = (&edits[next..next + group], &edits[next + group..]);
            let inside = match first.form {
                Form::Entry => 0,
                _ => inner.iter().take_while(|edit| edit.range.start < first.range.end).count(),
            };
            self.push(&source[from..first.range.start]);
            self.place(group, &inner[..inside]);
            from = first.range.end;
            next += group.len() + inside;
        }
        self.push(&source[from..range.end]);
    }

    fn place(&mut self, group: &[&Edit], inside: &[&Edit]) {
        let start = self.out.text.len();
        let form = group[0].form;
        if form == Form::Expression {
            self.push("(");
        }
        for edit in group {
            self.push(&format!("if {}({}) {{ ", self.switch, edit.number));
            let own = self.out.text.len();
            match form {
                Form::Entry => self.push(&format!("return {};", edit.replacement)),
                _ => self.push(&edit.replacement),
            }
            self.out.marks.push((own..self.out.text.len(), vec![edit.number]));
            self.push(if form == Form::Entry { " } " } else { " } else " });
        }
        if form != Form::Entry {
            self.push("{ ");
            self.write(group[0].range.clone(), inside);
            self.push(" }");
        }
        if form == Form::Expression {
            self.push(")");
        }
        self.out.marks.push((start..self.out.text.len(), group.iter().map(|edit| edit.number).collect()));
    }
}
