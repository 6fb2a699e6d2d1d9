/* The few kernel types the sampling program reads. Offsets are relocated at load time (CO-RE), so only
 * the names matter here; numbers are from include/uapi/linux/bpf.h and cannot change. */
#ifndef KERNEL_TYPES_H
#define KERNEL_TYPES_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

#endif
