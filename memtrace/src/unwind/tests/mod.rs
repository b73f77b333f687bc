mod libraries;
mod oracle;
