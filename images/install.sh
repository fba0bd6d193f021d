#!/bin/sh
# What the images' builders do, in their working directory.
#   install.sh packages     build.lock and requirements.lock into /opt/venv, which ends without pip
#   install.sh project      this project into /opt/mu-grpo, which /opt/venv looks into
set -eu
pip="/opt/venv/bin/python -m pip --disable-pip-version-check --no-input --quiet"

python3 -m venv /opt/venv
$pip install --require-hashes -r build.lock
case $1 in
packages)
  # Packages without a wheel are built by what is installed already: nothing comes in that has no hash.
  DS_BUILD_OPS=0 $pip install --require-hashes --no-build-isolation \
    ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r requirements.lock
  $pip check
  $pip uninstall --yes wheel pip
  /opt/venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" | while read -r site; do
    echo /opt/mu-grpo > "$site/mu-grpo.pth"
  done
  ;;
project)
  $pip install --no-deps --no-build-isolation --target /opt/mu-grpo .
  printf '%s' "${COMMIT:-}" > /opt/mu-grpo/COMMIT
  ;;
esac
