"""The daemon: sockets, requests, topics, and the threads behind them."""
