//! The GPU: memory, images, modules, launches and timing. All the unsafe code of the runner is here.
//!
//! Safety rests on the manifests. A launch hands addresses to foreign code, and nothing but the
//! sizes in the manifest keeps that code inside its buffers; each buffer is followed by a guard
//! zone that is compared with the rest, so that a write behind its end is noticed.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUevent_flags, CUfunction_attribute, CUlimit};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError,
    LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;

use crate::inputs;
use crate::manifest::{Access, Argument, Image, Launch};

/// Bytes copied before every timed launch: more than the second-level cache of any GPU we know, so
/// that every launch finds the same cache, and work enough to hide what the launch costs the host.
const WASH: usize = 96 << 20;

/// Bytes behind every buffer that no kernel may touch.
const GUARD: usize = 1024;

/// The GPU and a stream on it.
pub struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    begin: CudaEvent,
    end: CudaEvent,
    wash: Option<(CudaSlice<u8>, CudaSlice<u8>)>,
}

/// What the GPU calls itself.
pub struct Identity {
    /// Its name.
    pub name: String,
    /// 90 for compute capability 9.0.
    pub sm: u32,
    /// The version of CUDA that the driver speaks: `13.0`.
    pub cuda: String,
}

impl Device {
    /// Opens the first GPU.
    pub fn open() -> Result<Self> {
        // SAFETY: only asks whether the driver's library can be opened.
        if !unsafe { sys::is_culib_present() } {
            bail!("the CUDA driver is not installed here; --dry-run does all but launching");
        }
        let context = CudaContext::new(0).context("cannot open the GPU")?;
        // One stream: what cudarc does to keep several apart would only disturb the timing.
        // SAFETY: everything below is ordered by that one stream.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let timing = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let (begin, end) = (context.new_event(timing)?, context.new_event(timing)?);
        Ok(Device {
            context,
            stream,
            begin,
            end,
            wash: None,
        })
    }

    /// Takes the memory that timing needs.
    pub fn prepare_timing(&mut self) -> Result<(), DriverError> {
        self.wash = Some((
            self.stream.alloc_zeros(WASH)?,
            self.stream.alloc_zeros(WASH)?,
        ));
        Ok(())
    }

    /// Names the GPU.
    pub fn identity(&self) -> Result<Identity> {
        let (major, minor) = self.context.compute_capability()?;
        let mut version = 0;
        // SAFETY: writes one integer.
        unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
        Ok(Identity {
            name: self.context.name()?,
            sm: u32::try_from(major * 10 + minor)?,
            cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
        })
    }

    /// Loads an entry from a cubin or from PTX.
    pub fn load(&self, image: &Path, entry: &str, launch: &Launch) -> Result<CudaFunction> {
        let mut bytes = std::fs::read(image)?;
        bytes.push(0); // PTX must end in a NUL byte; a cubin says itself where it ends
        let module = self.context.load_module(Ptx::from_binary(bytes))?;
        let function = module.load_function(entry)?;
        if launch.dynamic_shared > 0 {
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(most, i32::try_from(launch.dynamic_shared)?)?;
        }
        Ok(function)
    }

    /// Gives every thread a stack of this many bytes; zero leaves the driver's choice.
    pub fn set_stack(&self, bytes: usize) -> Result<(), DriverError> {
        match bytes {
            0 => Ok(()),
            _ => self.context.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, bytes),
        }
    }

    /// Whether the GPU still answers: after a fault in a kernel it does not, until the process ends.
    pub fn is_alive(&self) -> bool {
        self.context.synchronize().is_ok()
    }

    /// Launches and waits.
    pub fn run(
        &self,
        function: &CudaFunction,
        launch: &Launch,
        memory: &Memory,
    ) -> Result<(), DriverError> {
        self.enqueue(function, launch, memory)?;
        self.stream.synchronize()
    }

    /// Launches between two events and says how many microseconds lie between them.
    pub fn time(
        &mut self,
        function: &CudaFunction,
        launch: &Launch,
        memory: &Memory,
    ) -> Result<f64, DriverError> {
        if let Some((from, to)) = &mut self.wash {
            self.stream.memcpy_dtod(from, to)?;
        }
        self.begin.record(&self.stream)?;
        self.enqueue(function, launch, memory)?;
        self.end.record(&self.stream)?;
        Ok(f64::from(self.begin.elapsed_ms(&self.end)?) * 1000.0)
    }

    fn enqueue(
        &self,
        function: &CudaFunction,
        launch: &Launch,
        memory: &Memory,
    ) -> Result<(), DriverError> {
        let mut builder = self.stream.launch_builder(function);
        for argument in &memory.arguments {
            match argument {
                Passed::Word(word) => builder.arg(word),
                Passed::Long(long) => builder.arg(long),
            };
        }
        let [[gx, gy, gz], [bx, by, bz]] = [launch.grid.0, launch.block.0];
        let config = LaunchConfig {
            grid_dim: (gx, gy, gz),
            block_dim: (bx, by, bz),
            shared_mem_bytes: launch.dynamic_shared,
        };
        // SAFETY: the arguments have the widths of the parameters (checked against the PTX), and
        // the manifest gives buffers the sizes that the kernel uses.
        unsafe { builder.launch(config) }.map(drop)
    }
}

/// An argument as the launch takes it.
enum Passed {
    Word(u32),
    Long(u64),
}

/// The arguments of one kernel and the memory behind them.
pub struct Memory {
    stream: Arc<CudaStream>,
    arguments: Vec<Passed>,
    regions: Vec<Region>,
}

/// Memory behind one argument.
struct Region {
    /// The position of the argument.
    argument: usize,
    access: Access,
    /// What it holds before a launch, the guard zone included.
    start: Vec<u8>,
    store: Store,
}

enum Store {
    Linear {
        used: CudaSlice<u8>,
        kept: CudaSlice<u8>,
    },
    Image(Array),
}

/// What one argument's memory holds after a launch.
pub struct Snapshot {
    /// The position of the argument.
    pub argument: usize,
    /// What the manifest says the kernel does with it.
    pub access: Access,
    /// Its bytes, the guard zone included.
    pub bytes: Vec<u8>,
}

impl Memory {
    /// Allocates and fills what the launch needs.
    pub fn new(device: &Device, launch: &Launch, seed: u64, kernel: &str) -> Result<Self> {
        let stream = device.stream.clone();
        let mut memory = Memory {
            stream,
            arguments: Vec::new(),
            regions: Vec::new(),
        };
        for (index, argument) in launch.arguments.iter().enumerate() {
            let passed = match argument {
                Argument::I32(value) => Passed::Word(*value as u32),
                Argument::F32(value) => Passed::Word(value.to_bits()),
                Argument::I64(value) => Passed::Long(*value as u64),
                Argument::F64(value) => Passed::Long(value.to_bits()),
                Argument::Buffer(buffer) => {
                    let mut start = inputs::buffer(buffer, seed, kernel, index);
                    start.extend(inputs::bits(GUARD, seed, kernel, index));
                    memory.add_buffer(index, buffer.access, start)?
                }
                Argument::Texture(image) => {
                    let texels = 4 * image.width * image.height;
                    let start = inputs::floats(texels, seed, kernel, index);
                    let array = Array::texture(*image)?;
                    memory.add_image(index, Access::In, start, array)?
                }
                Argument::Surface(image) => {
                    let start = inputs::bits(4 * image.width * image.height, seed, kernel, index);
                    let array = Array::surface(*image)?;
                    memory.add_image(index, Access::Inout, start, array)?
                }
            };
            memory.arguments.push(passed);
        }
        memory.stream.synchronize()?;
        Ok(memory)
    }

    fn add_buffer(&mut self, argument: usize, access: Access, start: Vec<u8>) -> Result<Passed> {
        let (used, kept) = (
            self.stream.clone_htod(&start)?,
            self.stream.clone_htod(&start)?,
        );
        let address = used.device_ptr(&self.stream).0;
        self.regions.push(Region {
            argument,
            access,
            start,
            store: Store::Linear { used, kept },
        });
        Ok(Passed::Long(address))
    }

    fn add_image(
        &mut self,
        argument: usize,
        access: Access,
        start: Vec<u8>,
        array: Array,
    ) -> Result<Passed> {
        array.write(&start)?;
        let object = array.object;
        self.regions.push(Region {
            argument,
            access,
            start,
            store: Store::Image(array),
        });
        Ok(Passed::Long(object))
    }

    /// Puts back what was there before the first launch, everywhere.
    pub fn restore(&mut self) -> Result<(), DriverError> {
        self.restore_where(|_| true)
    }

    /// Puts back only what a launch both reads and writes: enough for the next launch to do the
    /// same work.
    pub fn restore_updated(&mut self) -> Result<(), DriverError> {
        self.restore_where(|access| access == Access::Inout)
    }

    fn restore_where(&mut self, which: impl Fn(Access) -> bool) -> Result<(), DriverError> {
        for region in self
            .regions
            .iter_mut()
            .filter(|region| which(region.access))
        {
            match &mut region.store {
                Store::Linear { used, kept } => self.stream.memcpy_dtod(kept, used)?,
                Store::Image(array) => array.write(&region.start)?,
            }
        }
        Ok(())
    }

    /// What every argument's memory held before the first launch.
    pub fn before(&self) -> Vec<Snapshot> {
        let taken = |region: &Region| Snapshot {
            argument: region.argument,
            access: region.access,
            bytes: region.start.clone(),
        };
        self.regions.iter().map(taken).collect()
    }

    /// What every argument's memory holds now.
    pub fn now(&self) -> Result<Vec<Snapshot>, DriverError> {
        self.stream.synchronize()?;
        let taken = |region: &Region| {
            let bytes = match &region.store {
                Store::Linear { used, .. } => self.stream.clone_dtoh(used)?,
                Store::Image(array) => array.read(region.start.len())?,
            };
            Ok(Snapshot {
                argument: region.argument,
                access: region.access,
                bytes,
            })
        };
        let snapshots = self.regions.iter().map(taken).collect();
        self.stream.synchronize()?;
        snapshots
    }
}

/// A two-dimensional array with a texture or surface object over it. It lives as long as the
/// process, which runs one kernel.
struct Array {
    handle: sys::CUarray,
    object: u64,
    row: usize,
    rows: usize,
}

impl Array {
    fn texture(image: Image) -> Result<Self, DriverError> {
        let format = sys::CUarray_format::CU_AD_FORMAT_FLOAT;
        let handle = new_array(image, format, sys::CUDA_ARRAY3D_TEXTURE_GATHER)?;
        let clamp = sys::CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP;
        let texture = sys::CUDA_TEXTURE_DESC {
            addressMode: [clamp; 3],
            filterMode: sys::CUfilter_mode::CU_TR_FILTER_MODE_LINEAR,
            flags: 0,
            maxAnisotropy: 0,
            mipmapFilterMode: sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT,
            mipmapLevelBias: 0.0,
            minMipmapLevelClamp: 0.0,
            maxMipmapLevelClamp: 0.0,
            borderColor: [0.0; 4],
            reserved: [0; 12],
        };
        let mut object = 0;
        let resource = resource(handle);
        // SAFETY: both descriptors live until the call returns; the view is optional.
        unsafe { sys::cuTexObjectCreate(&mut object, &resource, &texture, ptr::null()) }
            .result()?;
        Ok(Array {
            handle,
            object,
            row: image.width * 16,
            rows: image.height,
        })
    }

    fn surface(image: Image) -> Result<Self, DriverError> {
        let format = sys::CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8;
        let handle = new_array(image, format, sys::CUDA_ARRAY3D_SURFACE_LDST)?;
        let mut object = 0;
        // SAFETY: the descriptor lives until the call returns.
        unsafe { sys::cuSurfObjectCreate(&mut object, &resource(handle)) }.result()?;
        Ok(Array {
            handle,
            object,
            row: image.width * 4,
            rows: image.height,
        })
    }

    fn write(&self, bytes: &[u8]) -> Result<(), DriverError> {
        assert!(
            bytes.len() >= self.row * self.rows,
            "the image is larger than its content"
        );
        let mut copy = self.copy();
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        copy.srcHost = bytes.as_ptr().cast::<c_void>();
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
        copy.dstArray = self.handle;
        // SAFETY: the host side holds all rows, as asserted; the other side is the whole array.
        unsafe { sys::cuMemcpy2D_v2(&copy) }.result()?;
        // The call returns once the host side may change, not once the array holds the content.
        result::ctx::synchronize()
    }

    fn read(&self, count: usize) -> Result<Vec<u8>, DriverError> {
        let mut bytes = vec![0; count.max(self.row * self.rows)];
        let mut copy = self.copy();
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
        copy.srcArray = self.handle;
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        copy.dstHost = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: the host side has room for all rows.
        unsafe { sys::cuMemcpy2D_v2(&copy) }.result()?;
        Ok(bytes)
    }

    /// A copy of the whole array whose two ends are still to be said.
    fn copy(&self) -> sys::CUDA_MEMCPY2D {
        sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: ptr::null(),
            srcDevice: 0,
            srcArray: ptr::null_mut(),
            srcPitch: self.row,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: ptr::null_mut(),
            dstDevice: 0,
            dstArray: ptr::null_mut(),
            dstPitch: self.row,
            WidthInBytes: self.row,
            Height: self.rows,
        }
    }
}

fn new_array(
    image: Image,
    format: sys::CUarray_format,
    flags: u32,
) -> Result<sys::CUarray, DriverError> {
    let described = sys::CUDA_ARRAY3D_DESCRIPTOR {
        Width: image.width,
        Height: image.height,
        Depth: 0,
        Format: format,
        NumChannels: 4,
        Flags: flags,
    };
    let mut handle = ptr::null_mut();
    // SAFETY: the descriptor lives until the call returns.
    unsafe { sys::cuArray3DCreate_v2(&mut handle, &described) }.result()?;
    Ok(handle)
}

fn resource(array: sys::CUarray) -> sys::CUDA_RESOURCE_DESC {
    // SAFETY: the descriptor is plain data, and zeros are valid in all of it; the union is the size
    // of its largest member, which the driver may read.
    let mut described: sys::CUDA_RESOURCE_DESC = unsafe { std::mem::zeroed() };
    described.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
    described.res.array.hArray = array;
    described
}
