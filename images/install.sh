#!/bin/sh
# Steps of the image builds, executed in the working directory of a builder:
#   install.sh packages     build.lock and requirements.lock into /opt/venv, which ends without installers
#   install.sh project      this project into /opt/mu-grpo, which /opt/venv looks into
set -eu
python=/opt/venv/bin/python

python3 -m venv /opt/venv
$python -m pip install --quiet --disable-pip-version-check --require-hashes -r build.lock
# Packages without a wheel are built with the packages that are installed, so that nothing without a hash is installed.
install="/opt/venv/bin/uv pip install --quiet --python $python --system-certs --no-build-isolation --link-mode copy"
case $1 in
packages)
  DS_BUILD_OPS=0 $install --require-hashes --compile-bytecode --index-strategy unsafe-best-match \
    ${PIP_INDEX_URL:+--index-url "$PIP_INDEX_URL"} ${PIP_EXTRA_INDEX_URL:+--extra-index-url "$PIP_EXTRA_INDEX_URL"} \
    ${PIP_FIND_LINKS:+--find-links "$PIP_FIND_LINKS"} ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
    -r requirements.lock
  $python -m pip check
  $python -m pip uninstall --quiet --yes pip uv wheel
  $python -c "import sysconfig; print(sysconfig.get_path('purelib'))" | while read -r site; do
    echo /opt/mu-grpo > "$site/mu-grpo.pth"
  done
  ;;
project)
  $install --no-deps --compile-bytecode --target /opt/mu-grpo .
  printf '%s' "${COMMIT:-}" > /opt/mu-grpo/COMMIT
  ;;
esac
