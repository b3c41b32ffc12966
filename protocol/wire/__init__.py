"""The declaration of messages, from which their codecs, their docs and their tests are derived."""
