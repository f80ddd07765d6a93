"""One cluster-aware client: who leads what, requests that find their way, a producer, a fetcher, an admin."""
