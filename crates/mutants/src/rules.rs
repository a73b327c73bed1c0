//! How mutants are made: each rule turns an expression into one that does the same, unless its number is asked for.
//!
//! All mutants of a tree stand in one build, so that trying one costs a run and no compilation. What is not touched: tests, constants, `const fn`, patterns, the inside of macros.

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{BinOp, Block, Expr, ItemConst, ItemFn, ItemMod, ItemStatic, Lit, Stmt, parse_quote};

/// A mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Its number; 0 is nobody's.
    pub number: u32,
    /// The line that it is in, counted from 1.
    pub line: usize,
    /// What it does.
    pub what: String,
}

/// Rewrites one file. `switch` is the path of the function that says whether a number is asked for; numbers count up from `next`.
pub fn rewrite(file: &mut syn::File, switch: &syn::Path, next: &mut u32) -> Vec<Mutant> {
    let mut rewriter = Rewriter { switch: switch.clone(), next, made: Vec::new() };
    rewriter.visit_file_mut(file);
    rewriter.made
}

struct Rewriter<'n> {
    switch: syn::Path,
    next: &'n mut u32,
    made: Vec<Mutant>,
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.to_token_stream().to_string().contains("test"))
}

/// The words of an expression, shortened.
fn words(of: &impl ToTokens) -> String {
    let text = of.to_token_stream().to_string();
    if text.chars().count() > 70 { format!("{}…", text.chars().take(70).collect::<String>()) } else { text }
}

impl Rewriter<'_> {
    /// A call that is true when the new mutant is asked for.
    fn add(&mut self, line: usize, what: String) -> Expr {
        let number = *self.next;
        *self.next += 1;
        self.made.push(Mutant { number, line, what });
        let switch = &self.switch;
        parse_quote!(#switch(#number))
    }

    /// `condition`, which was `text`, forced to be true, or false.
    fn force(&mut self, line: usize, text: &str, condition: &mut Expr) {
        // Bindings of `if let` must stay where they are.
        if has_let(condition) {
            return;
        }
        let (always, never) = (self.add(line, format!("`{text}` is true")), self.add(line, format!("`{text}` is false")));
        *condition = parse_quote!(((#condition) || #always) && !#never);
    }
}

fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

/// The comparison that is one off.
fn neighbour(op: &BinOp) -> Option<(BinOp, &'static str)> {
    Some(match op {
        BinOp::Lt(_) => (parse_quote!(<=), "<="),
        BinOp::Le(_) => (parse_quote!(<), "<"),
        BinOp::Gt(_) => (parse_quote!(>=), ">="),
        BinOp::Ge(_) => (parse_quote!(>), ">"),
        BinOp::Eq(_) => (parse_quote!(!=), "!="),
        BinOp::Ne(_) => (parse_quote!(==), "=="),
        _ => return None,
    })
}

impl VisitMut for Rewriter<'_> {
    fn visit_item_mod_mut(&mut self, item: &mut ItemMod) {
        if !is_test(&item.attrs) {
            visit_mut::visit_item_mod_mut(self, item);
        }
    }

    fn visit_item_fn_mut(&mut self, item: &mut ItemFn) {
        if item.sig.constness.is_none() && !is_test(&item.attrs) {
            visit_mut::visit_item_fn_mut(self, item);
        }
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut syn::ImplItemFn) {
        if item.sig.constness.is_none() && !is_test(&item.attrs) {
            visit_mut::visit_impl_item_fn_mut(self, item);
        }
    }

    fn visit_item_const_mut(&mut self, _: &mut ItemConst) {}

    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}

    fn visit_trait_item_const_mut(&mut self, _: &mut syn::TraitItemConst) {}

    fn visit_item_static_mut(&mut self, _: &mut ItemStatic) {}

    fn visit_variant_mut(&mut self, _: &mut syn::Variant) {}

    /// The length of an array is a constant.
    fn visit_expr_repeat_mut(&mut self, repeat: &mut syn::ExprRepeat) {
        self.visit_expr_mut(&mut repeat.expr);
    }

    fn visit_type_mut(&mut self, _: &mut syn::Type) {}

    fn visit_pat_mut(&mut self, _: &mut syn::Pat) {}

    /// Steps that are left out.
    fn visit_block_mut(&mut self, block: &mut Block) {
        let texts: Vec<(usize, String)> = block.stmts.iter().map(|statement| (statement.span().start().line, words(statement))).collect();
        visit_mut::visit_block_mut(self, block);
        for (statement, (line, text)) in block.stmts.iter_mut().zip(texts) {
            let Stmt::Expr(done, Some(_)) = statement else { continue };
            let is_step = match done {
                Expr::MethodCall(_) | Expr::Call(_) => true,
                Expr::Assign(assign) => matches!(*assign.left, Expr::Field(_) | Expr::Index(_)),
                Expr::Binary(binary) => {
                    matches!(binary.op, BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::BitOrAssign(_) | BinOp::BitAndAssign(_))
                }
                _ => false,
            };
            if is_step {
                let left_out = self.add(line, format!("without `{text}`"));
                *statement = parse_quote!(if !#left_out { #done; });
            }
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let (line, text) = (expr.span().start().line, words(expr));
        let condition = if let Expr::If(branch) = &*expr { words(&branch.cond) } else { String::new() };
        visit_mut::visit_expr_mut(self, expr);
        match expr {
            Expr::Binary(binary) => {
                let (left, right) = (&binary.left, &binary.right);
                if let Some((other, word)) = neighbour(&binary.op) {
                    let (op, asked) = (binary.op, self.add(line, format!("`{text}` with `{word}`")));
                    *expr = parse_quote!({ let (left, right) = (&(#left), &(#right)); if #asked { left #other right } else { left #op right } });
                } else if matches!(binary.op, BinOp::And(_)) && !has_let(left) && !has_let(right) {
                    let (first, second) =
                        (self.add(line, format!("`{text}` without its left side")), self.add(line, format!("`{text}` without its right side")));
                    *expr = parse_quote!((((#left) || #first) && ((#right) || #second)));
                } else if matches!(binary.op, BinOp::Or(_)) {
                    let (first, second) =
                        (self.add(line, format!("`{text}` without its left side")), self.add(line, format!("`{text}` without its right side")));
                    *expr = parse_quote!((((#left) && !#first) || ((#right) && !#second)));
                } else if let (BinOp::Add(_) | BinOp::Sub(_), Expr::Lit(literal)) = (&binary.op, &**right)
                    && matches!(literal.lit, Lit::Int(_))
                {
                    let (op, asked) = (binary.op, self.add(line, format!("`{text}` without the number")));
                    *expr = parse_quote!(((#left) #op (if #asked { 0 } else { #literal })));
                }
            }
            Expr::MethodCall(call) if call.args.len() == 1 && (call.method == "max" || call.method == "min") => {
                let asked = self.add(line, format!("`{text}` the other way"));
                let (receiver, argument) = (&call.receiver, &call.args[0]);
                let (most, least): (syn::Ident, syn::Ident) =
                    if call.method == "max" { (parse_quote!(max), parse_quote!(min)) } else { (parse_quote!(min), parse_quote!(max)) };
                *expr = parse_quote!({ let (left, right) = (#receiver, #argument); if #asked { left.#least(right) } else { left.#most(right) } });
            }
            Expr::If(branch) => self.force(line, &condition, &mut branch.cond),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str) -> (String, Vec<Mutant>) {
        let mut file = syn::parse_file(text).unwrap();
        let made = rewrite(&mut file, &parse_quote!(m), &mut 1);
        (file.to_token_stream().to_string().replace(' ', ""), made)
    }

    #[test]
    fn each_rule_finds_its_expressions() {
        let (text, made) = made("fn f(&mut self, a: u64) -> bool { self.g(a + 1); if a < 3 { self.b = a.max(2); } self.c || self.d && a == 7 }");
        let whats: Vec<&str> = made.iter().map(|mutant| mutant.what.as_str()).collect();
        for what in [
            "without the number",
            "`a < 3` with `<=`",
            "`a < 3` is true",
            "the other way",
            "without `self . b",
            "without `self . g",
            "without its left side",
            "with `!=`",
        ] {
            assert!(whats.iter().any(|known| known.contains(what)), "{what}: {whats:?}");
        }
        assert!(text.contains("if!m(") && text.contains("left.min(right)"), "{text}");
        let mut numbers: Vec<u32> = made.iter().map(|mutant| mutant.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=made.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn tests_constants_and_bindings_stay_as_they_are() {
        for text in [
            "#[cfg(test)] mod tests { fn f() { g(); } }",
            "const A: bool = 1 < 2;",
            "const fn f(a: u8) -> bool { a < 2 }",
            "fn f(a: Option<u8>) { let Some(b) = a else { return }; }",
        ] {
            assert_eq!(made(text).1, [], "{text}");
        }
        let (text, mutants) = made("fn f(a: Option<u8>) { if let Some(b) = a { } }");
        assert_eq!(mutants, [], "{text}");
    }
}
