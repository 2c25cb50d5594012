/*
 * postgres/plcuda/device/order.h - numbers of each type as uint64_t in the same order, for atomic minima and maxima and for sorting.
 *
 * plcuda_order_f64(a) < plcuda_order_f64(b) if a sorts before b in PostgreSQL: NaN is greater than all others. -0 is before 0, which
 * PostgreSQL takes for equal. ~ of a key reverses the order.
 */
#ifndef PLCUDA_DEVICE_ORDER_H
#define PLCUDA_DEVICE_ORDER_H

#include <gvmem/device/kernel.h>

#define PLCUDA_SIGN_64 0x8000000000000000u
#define PLCUDA_SIGN_32 0x80000000u

typedef union plcuda_bits
{
	double	 f64;
	uint64_t u64;
	float	 f32;
	uint32_t u32;
} plcuda_bits;

GVM_DEVICE uint64_t
plcuda_order_i64(int64_t v)
{
	return (uint64_t) v ^ PLCUDA_SIGN_64;
}
GVM_DEVICE int64_t
plcuda_unorder_i64(uint64_t key)
{
	return (int64_t) (key ^ PLCUDA_SIGN_64);
}

GVM_DEVICE uint64_t
plcuda_order_i32(int32_t v)
{
	return (uint32_t) v ^ PLCUDA_SIGN_32;
}
GVM_DEVICE int32_t
plcuda_unorder_i32(uint64_t key)
{
	return (int32_t) ((uint32_t) key ^ PLCUDA_SIGN_32);
}

GVM_DEVICE uint64_t
plcuda_order_f64(double v)
{
	plcuda_bits bits;

	bits.f64 = v;
	if (v != v)
		return ~(uint64_t) 0;
	return (bits.u64 & PLCUDA_SIGN_64) != 0 ? ~bits.u64 : bits.u64 | PLCUDA_SIGN_64;
}
GVM_DEVICE double
plcuda_unorder_f64(uint64_t key)
{
	plcuda_bits bits;

	bits.u64 = (key & PLCUDA_SIGN_64) != 0 ? key ^ PLCUDA_SIGN_64 : ~key;
	return bits.f64;
}

GVM_DEVICE uint64_t
plcuda_order_f32(float v)
{
	plcuda_bits bits;

	bits.f32 = v;
	if (v != v)
		return ~0u;
	return (bits.u32 & PLCUDA_SIGN_32) != 0 ? ~bits.u32 : bits.u32 | PLCUDA_SIGN_32;
}
GVM_DEVICE float
plcuda_unorder_f32(uint64_t key)
{
	plcuda_bits bits;

	bits.u32 = (key & PLCUDA_SIGN_32) != 0 ? (uint32_t) key ^ PLCUDA_SIGN_32 : ~(uint32_t) key;
	return bits.f32;
}

#endif
