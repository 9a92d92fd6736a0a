# Sourced by scripts that call uv, which reads nothing of what pip is told of index and certificates.

pip_is_told() { # NAME: by the environment (pip's own order) or by its file
  .venv/bin/python -m pip config get ":env:.$1" 2>/dev/null || .venv/bin/python -m pip config get "global.$1" 2>/dev/null || true
}

index=$(pip_is_told index-url)
[ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
more=$(pip_is_told extra-index-url)
[ -z "$more" ] || export UV_INDEX="${UV_INDEX:-$more}"
certificates=$(pip_is_told cert)
[ -z "$certificates" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$certificates}"
