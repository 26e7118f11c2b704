"""How the embedded models rose-tiny and rose-tiny-draft were made."""
