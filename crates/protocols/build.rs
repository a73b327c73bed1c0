//! Counts the protocols' lines of code, for the comparison in `docs/protocols.md`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The lines of `file` up to its tests that are neither blank nor comments.
fn code_lines(file: &Path) -> io::Result<usize> {
    let text = fs::read_to_string(file)?;
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    Ok(code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count())
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=src");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    let (mut lines, mut shared) = (String::from("&["), String::from("&["));
    for path in sorted(Path::new("src"))? {
        if !path.is_dir() {
            if !["lib", "registry"].contains(&stem(&path)) {
                let _ = write!(shared, "({:?}, {}),", stem(&path), code_lines(&path)?);
            }
            continue;
        }
        let (mut server, mut client, mut message) = (0, 0, 0);
        for file in sorted(&path)?.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
            match stem(file) {
                // It lists the other files, and the bugs that can be planted.
                "mod" => {}
                "client" => client += code_lines(file)?,
                "message" => message += code_lines(file)?,
                _ => server += code_lines(file)?,
            }
        }
        let _ = write!(lines, "({:?}, Lines {{ server: {server}, client: {client}, message: {message} }}),", stem(&path));
    }
    lines.push(']');
    shared.push(']');
    fs::write(out.join("lines.rs"), lines)?;
    fs::write(out.join("shared.rs"), shared)
}
