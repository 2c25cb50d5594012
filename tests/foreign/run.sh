#!/bin/sh
# usage: run.sh PROGRAM IMAGES SOFT
# Runs a program that was linked with -lcuda, on the software GPU as its users are told to: the folder SOFT, which has it
# as libcuda.so.1, stands on LD_LIBRARY_PATH. With GVMEM_DRIVER=cuda on NVIDIA's driver. IMAGES is the folder of the
# kernel images.
set -eu
program=$1 images=$2 soft=$3
if [ "${GVMEM_DRIVER:-soft}" = cuda ]; then
    exec "$program" "$images/conform-kernels.fatbin"
fi
export LD_LIBRARY_PATH="$soft${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
for machine in devices=1 devices=2; do
    GVMEM_SOFTGPU="$machine,memory=256MiB,sms=2,instance=foreign-$$" "$program" "$images/conform-kernels.so"
done
