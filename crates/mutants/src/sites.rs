//! Where a source file can be mutated, by rule.

use crate::Fault;
use std::ops::Range;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, ExprBinary, ExprMethodCall, Lit, Stmt, Type, UnOp};

/// How a mutant stands in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// In the place of an expression.
    Expression,
    /// In the place of statements.
    Statement,
    /// At the start of a function's body, which it leaves with the replacement.
    Entry,
}

/// A place that can be mutated, and what stands there instead.
#[derive(Clone, Debug)]
pub struct Site {
    /// The file, from the root of the tree.
    pub file: String,
    /// The function, with the type that it belongs to.
    pub function: String,
    /// The rule that finds it.
    pub rule: &'static str,
    /// What stands there, in one line; shortened if it is long.
    pub text: String,
    /// Which one, from 1 on, of those in the function of which everything else is the same.
    pub nth: usize,
    /// The bytes that are replaced.
    pub range: Range<usize>,
    /// How.
    pub form: Form,
    /// What stands there instead.
    pub replacement: String,
}

/// A source file that was read for its sites.
#[derive(Debug)]
pub struct Source {
    /// From the root of the tree.
    pub file: String,
    /// Its text.
    pub text: String,
    /// What the rules find in it.
    pub sites: Vec<Site>,
    /// Every expression that may be replaced as a whole.
    pub expressions: Vec<Range<usize>>,
    /// Every run of statements begins and ends with some of these; the number tells the block.
    pub statements: Vec<(usize, Range<usize>)>,
}

/// Longer texts are cut, and end with a hash of the rest.
const LONG: usize = 110;

/// `text` in one line, shortened if it is long.
pub fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= LONG {
        return line;
    }
    let head: String = line.chars().take(LONG - 10).collect();
    format!("{head}…{:08x}", crate::hash(&line) as u32)
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let meta = &attribute.meta;
        meta.path().is_ident("test") || matches!(meta, syn::Meta::List(list) if list.path.is_ident("cfg") && list.tokens.to_string().contains("test"))
    })
}

/// The files of a crate, by way of its `mod` items, those of tests left out; each with its syntax.
///
/// # Errors
/// A file is missing, or is not Rust.
pub fn crate_files(library: &Path) -> Result<Vec<(PathBuf, String, syn::File)>, Fault> {
    let mut found = Vec::new();
    let folder = library.parent().unwrap_or(Path::new("")).to_owned();
    let mut open = vec![(library.to_owned(), folder)];
    while let Some((path, folder)) = open.pop() {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let syntax = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        for item in &syntax.items {
            let syn::Item::Mod(module) = item else { continue };
            // Checks of stores, which tests call.
            let is_checks = module.ident == "conformance";
            if module.content.is_some() || is_checks || is_test(&module.attrs) {
                continue;
            }
            let name = module.ident.to_string();
            let inner = folder.join(&name);
            let file = [folder.join(format!("{name}.rs")), inner.join("mod.rs")].into_iter().find(|path| path.is_file());
            let file = file.ok_or_else(|| format!("{}: no file for `mod {name}`", path.display()))?;
            open.push((file, inner));
        }
        found.push((path, text, syntax));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Reads `text` for its sites.
///
/// # Errors
/// It is not Rust.
pub fn source(file: &str, text: &str) -> Result<Source, Fault> {
    let syntax = syn::parse_file(text).map_err(|error| format!("{file}: {error}"))?;
    Ok(of_syntax(file, text, &syntax))
}

/// The sites of a file that has been parsed from `text`.
pub fn of_syntax(file: &str, text: &str, syntax: &syn::File) -> Source {
    let source = Source { file: file.to_owned(), text: text.to_owned(), sites: Vec::new(), expressions: Vec::new(), statements: Vec::new() };
    let mut finder = Finder { source, names: Vec::new(), loops: Vec::new(), blocks: 0 };
    finder.visit_file(syntax);
    let mut source = finder.source;
    source.sites.sort_by_key(|site| (site.range.start, site.range.end, site.rule));
    for at in 0..source.sites.len() {
        let site = &source.sites[at];
        let alike = |other: &&Site| (&other.function, other.rule, &other.text) == (&site.function, site.rule, &site.text);
        source.sites[at].nth = source.sites[..at].iter().filter(alike).count() + 1;
    }
    source
}

struct Finder {
    source: Source,
    names: Vec<String>,
    /// For each loop around: whether leaving it and going on with it can be exchanged.
    loops: Vec<bool>,
    blocks: usize,
}

fn range(of: &impl Spanned) -> Range<usize> {
    of.span().byte_range()
}

fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn is_one(expression: &Expr) -> bool {
    matches!(expression, Expr::Lit(literal) if matches!(&literal.lit, Lit::Int(number) if number.base10_digits() == "1"))
}

/// Methods that are exchanged for each other, where they have so many arguments.
const PAIRS: &[(&str, &str, usize, &str)] = &[
    ("min", "max", 1, "extreme"),
    ("min", "max", 0, "extreme"),
    ("min_by_key", "max_by_key", 1, "extreme"),
    ("first", "last", 0, "end"),
    ("first_key_value", "last_key_value", 0, "end"),
    ("front", "back", 0, "end"),
    ("pop_front", "pop_back", 0, "end"),
    ("pop_first", "pop_last", 0, "end"),
    ("push_front", "push_back", 1, "end"),
    ("any", "all", 1, "quantifier"),
    ("is_some", "is_none", 0, "test"),
    ("is_ok", "is_err", 0, "test"),
    ("is_some_and", "is_none_or", 1, "test"),
];

/// Tests that are turned around.
const TURNED: &[&str] = &["is_empty", "contains", "contains_key", "is_some_and", "is_none_or", "covers", "dominates"];

/// Methods whose argument is left out.
const LEFT_OUT: &[&str] = &["saturating_sub", "saturating_add", "wrapping_add", "wrapping_sub"];

impl Finder {
    fn text(&self, range: Range<usize>) -> &str {
        &self.source.text[range]
    }

    /// Adds a site, whose key is the text at `of`.
    fn add(&mut self, rule: &'static str, of: Range<usize>, range: Range<usize>, form: Form, replacement: String) {
        let text = one_line(self.text(of));
        // Planted bugs are mutants already.
        if self.names.is_empty() || text.contains("planted") {
            return;
        }
        let function = self.names.join("::");
        self.source.sites.push(Site { file: self.source.file.clone(), function, rule, text, nth: 0, range, form, replacement });
    }

    fn replace(&mut self, rule: &'static str, of: Range<usize>, replacement: String) {
        self.add(rule, of.clone(), of, Form::Expression, replacement);
    }

    /// `whole` with `part` replaced.
    fn with(&self, whole: &Range<usize>, part: Range<usize>, by: &str) -> String {
        format!("{}{by}{}", self.text(whole.start..part.start), self.text(part.end..whole.end))
    }

    fn function(&mut self, name: &syn::Ident, output: &syn::ReturnType, block: &Block) {
        self.names.push(name.to_string());
        let loops = std::mem::take(&mut self.loops);
        self.entry(output, block);
        self.visit_block(block);
        self.loops = loops;
        self.names.pop();
    }

    /// A function that returns at once.
    fn entry(&mut self, output: &syn::ReturnType, block: &Block) {
        if block.stmts.is_empty() {
            return;
        }
        let returned: &[&str] = match output {
            syn::ReturnType::Default => &[""],
            syn::ReturnType::Type(_, of) => match &**of {
                Type::Path(path) => match path.path.segments.last().map(|segment| segment.ident.to_string()).as_deref() {
                    Some("bool") => &["true", "false"],
                    Some("u64" | "u32" | "u16" | "i64" | "usize") => &["0"],
                    Some("Option") => &["None"],
                    Some("Vec") => &["Vec::new()"],
                    _ => &[],
                },
                _ => &[],
            },
        };
        let at = range(&block.brace_token.span.open()).end;
        for value in returned {
            let rule = match *value {
                "" => "does nothing",
                "true" => "returns true",
                "false" => "returns false",
                "None" => "returns None",
                "0" => "returns 0",
                _ => "returns nothing",
            };
            let of = range(block);
            let text = of.start..of.start;
            self.add(rule, text, at..at, Form::Entry, (*value).to_owned());
        }
    }

    fn condition(&mut self, condition: &Expr) {
        if !has_let(condition) {
            self.replace("condition true", range(condition), "true".to_owned());
            self.replace("condition false", range(condition), "false".to_owned());
        }
    }

    fn binary(&mut self, binary: &ExprBinary) {
        let (whole, op) = (range(binary), range(&binary.op));
        let (rule, by) = match binary.op {
            BinOp::Lt(_) => ("bound", "<="),
            BinOp::Le(_) => ("bound", "<"),
            BinOp::Gt(_) => ("bound", ">="),
            BinOp::Ge(_) => ("bound", ">"),
            BinOp::Eq(_) => ("equality", "!="),
            BinOp::Ne(_) => ("equality", "=="),
            BinOp::And(_) if !has_let(&binary.left) && !has_let(&binary.right) => ("connective", "||"),
            BinOp::Or(_) => ("connective", "&&"),
            BinOp::Add(_) | BinOp::Sub(_) if is_one(&binary.right) => {
                let left = self.text(range(&*binary.left)).to_owned();
                self.replace("one off", whole, left);
                return;
            }
            BinOp::Add(_) => ("arithmetic", "-"),
            BinOp::Sub(_) => ("arithmetic", "+"),
            BinOp::AddAssign(_) => ("arithmetic", "-="),
            BinOp::SubAssign(_) => ("arithmetic", "+="),
            _ => return,
        };
        let replacement = self.with(&whole, op, by);
        self.replace(rule, whole, replacement);
    }

    fn method(&mut self, call: &ExprMethodCall) {
        let (whole, name) = (range(call), call.method.to_string());
        for (one, other, arguments, rule) in PAIRS {
            let by = match (name == *one, name == *other) {
                (true, _) => other,
                (_, true) => one,
                _ => continue,
            };
            if call.args.len() == *arguments {
                let replacement = self.with(&whole, range(&call.method), by);
                self.replace(rule, whole.clone(), replacement);
            }
        }
        if TURNED.contains(&name.as_str()) {
            let replacement = format!("!{}", self.text(whole.clone()));
            self.replace("turned", whole.clone(), replacement);
        }
        if LEFT_OUT.contains(&name.as_str()) {
            let replacement = self.text(range(&*call.receiver)).to_owned();
            self.replace("summand", whole, replacement);
        }
    }

    fn body(&mut self, block: &Block, exchangeable: bool) {
        self.loops.push(exchangeable);
        self.visit_block(block);
        self.loops.pop();
    }
}

fn can_be_left_out(expression: &Expr) -> bool {
    match expression {
        Expr::MethodCall(_) | Expr::ForLoop(_) => true,
        Expr::Call(call) => matches!(&*call.func, Expr::Path(_)),
        Expr::Assign(assign) => matches!(&*assign.left, Expr::Field(_) | Expr::Index(_) | Expr::Unary(_)),
        Expr::Binary(binary) => matches!(binary.op, BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::BitOrAssign(_)),
        Expr::Return(returned) => returned.expr.is_none(),
        Expr::Try(tried) => can_be_left_out(&tried.expr),
        _ => false,
    }
}

impl<'a> Visit<'a> for Finder {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let named = |name: &str| item.trait_.as_ref().is_some_and(|(_, path, _)| path.segments.last().is_some_and(|segment| segment.ident == name));
        if is_test(&item.attrs) || named("Display") || named("Debug") {
            return;
        }
        let name = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.names.push(name.unwrap_or_else(|| "impl".to_owned()));
        item.items.iter().for_each(|item| self.visit_impl_item(item));
        self.names.pop();
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.names.push(item.ident.to_string());
        item.items.iter().for_each(|item| self.visit_trait_item(item));
        self.names.pop();
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        // Only tests of the server, which are not run, look at gauges.
        if item.sig.constness.is_none() && !is_test(&item.attrs) && item.sig.ident != "gauges" {
            self.function(&item.sig.ident, &item.sig.output, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        // Only tests of the server, which are not run, look at gauges.
        if item.sig.constness.is_none() && !is_test(&item.attrs) && item.sig.ident != "gauges" {
            self.function(&item.sig.ident, &item.sig.output, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig.ident, &item.sig.output, block);
        }
    }

    // What is known when it is compiled cannot be switched.
    fn visit_item_const(&mut self, _: &'a syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'a syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'a syn::TraitItemConst) {}
    fn visit_item_enum(&mut self, _: &'a syn::ItemEnum) {}
    fn visit_item_struct(&mut self, _: &'a syn::ItemStruct) {}
    fn visit_item_macro(&mut self, _: &'a syn::ItemMacro) {}
    fn visit_expr_const(&mut self, _: &'a syn::ExprConst) {}
    fn visit_type(&mut self, _: &'a Type) {}
    fn visit_pat(&mut self, _: &'a syn::Pat) {}
    fn visit_path(&mut self, _: &'a syn::Path) {}
    fn visit_attribute(&mut self, _: &'a Attribute) {}
    fn visit_generic_argument(&mut self, _: &'a syn::GenericArgument) {}

    fn visit_expr_repeat(&mut self, repeat: &'a syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_block(&mut self, block: &'a Block) {
        let number = self.blocks;
        self.blocks += 1;
        // What `let` names is used after it.
        for statement in block.stmts.iter().filter(|statement| !matches!(statement, Stmt::Local(_))) {
            self.source.statements.push((number, range(statement)));
        }
        visit::visit_block(self, block);
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        let (of, without) = (range(statement), String::new());
        match statement {
            Stmt::Expr(expression, Some(_)) if can_be_left_out(expression) => self.add("left out", of.clone(), of, Form::Statement, without),
            Stmt::Expr(expression @ Expr::ForLoop(_), None) if can_be_left_out(expression) => {
                self.add("left out", of.clone(), of, Form::Statement, without);
            }
            _ => {}
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        if let Some(init) = &local.init {
            self.visit_expr(&init.expr);
            if let Some((_, other)) = &init.diverge {
                self.visit_expr(other);
            }
        }
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard);
            self.visit_expr(guard);
        }
        self.visit_expr(&arm.body);
    }

    fn visit_expr_closure(&mut self, closure: &'a syn::ExprClosure) {
        let loops = std::mem::take(&mut self.loops);
        self.visit_expr(&closure.body);
        self.loops = loops;
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        let of = range(expression);
        self.source.expressions.push(of.clone());
        match expression {
            Expr::Binary(binary) => self.binary(binary),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let inner = self.text(range(&*unary.expr)).to_owned();
                self.replace("negation", of, inner);
            }
            Expr::MethodCall(call) => self.method(call),
            Expr::Call(call) if matches!(&*call.func, Expr::Path(path) if path.path.is_ident("Some")) => {
                self.replace("none", of, "None".to_owned());
            }
            Expr::Lit(literal) => {
                if let Lit::Bool(value) = &literal.lit {
                    self.replace("word", of, (!value.value).to_string());
                }
            }
            Expr::Break(leave) if leave.expr.is_none() && leave.label.is_none() && self.loops.last() == Some(&true) => {
                self.replace("loop", of, "continue".to_owned());
            }
            Expr::Continue(next) if next.label.is_none() && self.loops.last() == Some(&true) => self.replace("loop", of, "break".to_owned()),
            Expr::If(branch) => {
                self.condition(&branch.cond);
                self.visit_expr(&branch.cond);
                let planted = self.text(range(&*branch.cond)).to_owned();
                if !planted.contains("planted") || planted.contains('!') {
                    self.visit_block(&branch.then_branch);
                }
                if let Some((_, other)) = &branch.else_branch {
                    self.visit_expr(other);
                }
                return;
            }
            Expr::While(looped) => {
                self.visit_expr(&looped.cond);
                return self.body(&looped.body, true);
            }
            Expr::ForLoop(looped) => {
                self.visit_expr(&looped.expr);
                return self.body(&looped.body, true);
            }
            // One that is never left has a type of its own.
            Expr::Loop(looped) => return self.body(&looped.body, false),
            _ => {}
        }
        visit::visit_expr(self, expression);
    }
}
