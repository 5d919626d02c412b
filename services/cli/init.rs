//! `walspool init`: from flags, or by asking on a terminal.

use std::fs::OpenOptions;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{Global, output};
use crate::config::names::{check_id, check_identifier, check_slot_name};
use crate::config::{Environment, Secret, TableName};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::init::{self, Connection, Plan, SqlStep};

/// Writes a commented configuration and prints the SQL for role and publication
///
/// Changes nothing at source or target. Flags that are missing are asked for on a terminal.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool init --id retail --source-url-env RETAIL_DATABASE_URL \\\n    \
--target-url-file /etc/walspool/target.url --table public.orders=id --table public.lines=order_id,line \\\n    \
--store /var/lib/walspool/retail --environment production --config /etc/walspool/walspool.toml")]
pub(super) struct InitArgs {
    /// Id of source and dataset: lower case letters, digits, _ and -
    #[arg(long)]
    id: Option<String>,
    /// How strict the rules are
    #[arg(long, value_enum, default_value = "development")]
    environment: EnvironmentArg,
    /// Connection string of the source, written into the file (development only)
    #[arg(long, value_name = "URL", conflicts_with_all = ["source_url_env", "source_url_file"])]
    source_url: Option<String>,
    /// Environment variable with the source's connection string
    #[arg(long, value_name = "NAME", conflicts_with = "source_url_file")]
    source_url_env: Option<String>,
    /// File with the source's connection string
    #[arg(long, value_name = "PATH")]
    source_url_file: Option<PathBuf>,
    /// Connection string of the target, written into the file (development only)
    #[arg(long, value_name = "URL", conflicts_with_all = ["target_url_env", "target_url_file"])]
    target_url: Option<String>,
    /// Environment variable with the target's connection string
    #[arg(long, value_name = "NAME", conflicts_with = "target_url_file")]
    target_url_env: Option<String>,
    /// File with the target's connection string
    #[arg(long, value_name = "PATH")]
    target_url_file: Option<PathBuf>,
    /// A table and its key columns, SCHEMA.TABLE=COLUMN[,COLUMN]; once per table
    #[arg(long = "table", value_name = "TABLE=KEY")]
    tables: Vec<String>,
    /// Directory of the store, absolute
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Role that walspool logs in with, for the printed SQL
    #[arg(long, default_value = "walspool")]
    role: String,
    /// Publication [default: walspool_ID]
    #[arg(long)]
    publication: Option<String>,
    /// Slot [default: walspool_ID]
    #[arg(long)]
    slot: Option<String>,
    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EnvironmentArg {
    Development,
    Production,
}

#[derive(Serialize)]
struct InitDocument<'a> {
    schema_version: u32,
    config: String,
    sql: &'a [SqlStep],
}

pub(super) fn run(global: &Global, args: &InitArgs) -> Result<Exit, Failure> {
    let path = global.config.clone().unwrap_or_else(|| PathBuf::from("walspool.toml"));
    if path.exists() && !args.force {
        return Err(already_there(&path));
    }
    let plan = plan(args)?;
    write(&path, &init::render(&plan), args.force)?;
    let steps = init::steps(&plan);
    if global.json {
        output::print_json(&InitDocument { schema_version: 1, config: path.display().to_string(), sql: &steps })?;
    } else {
        let mut text = format!("-- written: {}\n-- Nothing was changed at any server. Run this SQL:\n", path.display());
        for step in &steps {
            text.push_str(&format!("\n-- {}\n{}", step.title, step.sql));
        }
        text.push_str(&format!("\n-- then: walspool check --config {}\n", path.display()));
        output::print(&text)?;
    }
    Ok(Exit::Ok)
}

fn already_there(path: &Path) -> Failure {
    Failure::usage(format!("{} exists already", path.display()))
        .with_remedy("--force overwrites it, --config FILE writes another")
}

/// The file may hold a connection string, so only its owner may read it.
fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options.open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => already_there(path),
        _ => Failure::usage(format!("{} cannot be written: {error}", path.display())),
    })
}

fn plan(args: &InitArgs) -> Result<Plan, Failure> {
    let mut questions = Questions::new();
    let environment = match args.environment {
        EnvironmentArg::Development => Environment::Development,
        EnvironmentArg::Production => Environment::Production,
    };
    let id = questions.text(args.id.as_deref(), "--id", "Id of source and dataset, for example retail")?;
    checked("--id", &id, check_id)?;
    let source =
        connection([args.source_url.as_deref(), args.source_url_env.as_deref()], args.source_url_file.as_deref());
    let source = match source {
        Some(source) => source,
        None => questions.connection("--source-url-env", "source")?,
    };
    let target =
        connection([args.target_url.as_deref(), args.target_url_env.as_deref()], args.target_url_file.as_deref());
    for (flag, connection) in [("--source-url", Some(&source)), ("--target-url", target.as_ref())] {
        if let Some(connection) = connection {
            check_connection(flag, connection, environment)?;
        }
    }
    let tables = tables(&mut questions, &args.tables)?;
    let store = args.store.as_deref().map(|path| path.to_string_lossy().into_owned());
    let store = PathBuf::from(questions.text(store.as_deref(), "--store", "Directory of the store, absolute")?);
    if !store.is_absolute() {
        return Err(Failure::usage(format!("--store {}: expected an absolute path", store.display())));
    }
    questions.finish()?;
    let publication = args.publication.clone().unwrap_or_else(|| init::default_slot(&id));
    checked("--publication", &publication, check_identifier)?;
    checked("--role", &args.role, check_identifier)?;
    let slot = args.slot.clone().unwrap_or_else(|| init::default_slot(&id));
    checked("--slot", &slot, check_slot_name)?;
    Ok(Plan { environment, id, source, role: args.role.clone(), publication, slot, tables, store, target })
}

fn checked(flag: &str, value: &str, check: impl Fn(&str) -> Result<(), &'static str>) -> Result<(), Failure> {
    check(value).map_err(|reason| Failure::usage(format!("{flag} `{value}`: {reason}")))
}

fn connection([url, variable]: [Option<&str>; 2], file: Option<&Path>) -> Option<Connection> {
    url.map(|url| Connection::Url(Secret::new(url.to_owned())))
        .or_else(|| variable.map(|name| Connection::Variable(name.to_owned())))
        .or_else(|| file.map(|path| Connection::File(path.to_owned())))
}

fn check_connection(flag: &str, connection: &Connection, environment: Environment) -> Result<(), Failure> {
    match connection {
        Connection::Url(_) if environment == Environment::Production => {
            Err(Failure::usage(format!("{flag} writes the connection string into the file, which production refuses"))
                .with_remedy(format!("{flag}-env NAME or {flag}-file PATH")))
        }
        Connection::File(path) if !path.is_absolute() => {
            Err(Failure::usage(format!("{flag}-file {}: expected an absolute path", path.display())))
        }
        _ => Ok(()),
    }
}

fn tables(questions: &mut Questions, flags: &[String]) -> Result<Vec<(TableName, Vec<String>)>, Failure> {
    let mut answers = flags.to_vec();
    if answers.is_empty() {
        let text = questions.text(
            None,
            "--table",
            "Tables with keys, for example public.orders=id public.lines=order_id,line",
        )?;
        answers = text.split_whitespace().map(str::to_owned).collect();
    }
    answers.iter().map(|answer| table(answer)).collect()
}

fn table(text: &str) -> Result<(TableName, Vec<String>), Failure> {
    let refuse = |reason: &str| {
        Failure::usage(format!("--table `{text}`: {reason}")).with_remedy("for example --table public.orders=id")
    };
    let (name, key) = text.split_once('=').ok_or_else(|| refuse("expected SCHEMA.TABLE=COLUMN[,COLUMN]"))?;
    let name: TableName = name.parse().map_err(|error| refuse(&format!("{error}")))?;
    let key: Vec<String> = key.split(',').map(|column| column.trim().to_owned()).collect();
    for column in &key {
        check_identifier(column).map_err(&refuse)?;
    }
    Ok((name, key))
}

/// Asks on a terminal; elsewhere collects the flags that are missing, to name them all at once.
struct Questions {
    terminal: bool,
    missing: Vec<&'static str>,
}

impl Questions {
    fn new() -> Self {
        let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Self { terminal, missing: Vec::new() }
    }

    /// The flag's value, or an answer. Without a terminal a placeholder that [`Self::finish`] refuses.
    fn text(&mut self, flag_value: Option<&str>, flag: &'static str, question: &str) -> Result<String, Failure> {
        if let Some(value) = flag_value {
            return Ok(value.to_owned());
        }
        if !self.terminal {
            self.missing.push(flag);
            return Ok(placeholder(flag).to_owned());
        }
        loop {
            eprint!("{question}: ");
            let mut line = String::new();
            if std::io::stdin().lock().read_line(&mut line)? == 0 {
                return Err(Failure::usage(format!("no answer for {flag}")));
            }
            if !line.trim().is_empty() {
                return Ok(line.trim().to_owned());
            }
        }
    }

    /// A connection string is never asked for: it would be echoed. The name of a variable is.
    fn connection(&mut self, flag: &'static str, what: &str) -> Result<Connection, Failure> {
        let question = format!("Environment variable with the connection string of the {what}");
        self.text(None, flag, &question).map(Connection::Variable)
    }

    fn finish(self) -> Result<(), Failure> {
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(format!("missing: {}", self.missing.join(", ")))
            .with_remedy("`walspool init --help` has an example"))
    }
}

/// Passes the checks between here and [`Questions::finish`].
fn placeholder(flag: &str) -> &'static str {
    match flag {
        "--table" => "missing.missing=missing",
        "--store" => "/missing",
        _ => "missing",
    }
}
