"""The small module that the chapters share: data, vocabularies, fast trainers, figures."""
